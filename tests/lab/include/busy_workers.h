/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Starts workers in every state: asleep, spinning, in a call that sleeps and in a call that
 * computes. Tests of the end of a process use them.
 */
#ifndef TL_TEST_BUSY_WORKERS_H
#define TL_TEST_BUSY_WORKERS_H

#include "ring.h"

static struct ring busy_ring, idle_ring;
static struct worker busy_workers[4];

static inline void busy_workers_start(void)
{
	static struct timespec pause = { .tv_sec = 100 };
	static char bytes[1 << 20];
	int zero = MUST(open("/dev/zero", O_RDONLY));

	busy_ring = ring_open_spin(8, TL_SETUP_WORKERS, TL_SPIN_US_MAX);
	idle_ring = worker_ring_open(8);
	for (int i = 0; i < 3; i++)
		worker_start(&busy_workers[i], &busy_ring);
	worker_start(&busy_workers[3], &idle_ring);
	ring_queue(&busy_ring, 0, SYS_nanosleep, &pause, NULL);
	for (unsigned int slot = 1; slot < 8; slot++)
		ring_queue(&busy_ring, slot, SYS_read, zero, bytes, sizeof(bytes));
	CHECK_EQ(ring_notify(&busy_ring, 8), 8);
	while (ring_state(&busy_ring, 0) != TL_RUNNING)
		sched_yield();
}

#endif /* TL_TEST_BUSY_WORKERS_H */
