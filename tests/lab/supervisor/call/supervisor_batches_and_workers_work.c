// SPDX-License-Identifier: GPL-2.0-only
/*
 * Batches and workers of a process in supervisor mode do what they do in user mode: every request
 * once, partial completion at a signal, requesters and workers in either mode.
 */
#include "ring.h"
#include "supervisor.h"

#define ENTRIES 64
#define ROUNDS 300

static void check_batches(struct ring *ring)
{
	struct tl_stats before = ring_stats(ring), after;

	for (int round = 0; round < ROUNDS; round++) {
		for (unsigned int slot = 0; slot < ENTRIES; slot++)
			ring_put(ring, slot, SYS_lseek, -1 - round, slot, 0);
		reach_supervisor();
		CHECK_EQ(ring_batch(ring, 0, ENTRIES), ENTRIES);
		for (unsigned int slot = 0; slot < ENTRIES; slot++)
			CHECK_DONE(ring, slot, -EBADF);
	}
	after = ring_stats(ring);
	CHECK_EQ(after.executed - before.executed, ROUNDS * ENTRIES);
	CHECK_EQ(after.bypassed, before.bypassed);
}

/* The second request makes a signal pending: the third is not begun. */
static void check_partial(struct ring *ring)
{
	for (int round = 0; round < ROUNDS; round++) {
		handled = 0;
		ring_put(ring, 0, SYS_getpid);
		ring_put(ring, 1, SYS_kill, getpid(), SIGUSR1);
		ring_put(ring, 2, SYS_getppid);
		reach_supervisor();
		CHECK_EQ(ring_batch(ring, 0, 3), 2);
		CHECK_EQ(handled, 1);
		CHECK_DONE(ring, 0, getpid());
		CHECK_DONE(ring, 1, 0);
		CHECK_EQ(ring_state(ring, 2), TL_SUBMITTED);
		CHECK_EQ(ring_batch(ring, 2, 1), 1);
		CHECK_DONE(ring, 2, getppid());
	}
}

static void check_workers(void)
{
	struct ring ring = worker_ring_open(ENTRIES);
	struct worker workers[2] = { 0 };

	worker_start(&workers[0], &ring);
	worker_start(&workers[1], &ring);
	for (int round = 0; round < ROUNDS; round++) {
		for (unsigned int slot = 0; slot < ENTRIES; slot++)
			ring_queue(&ring, slot, SYS_getppid);
		if (round % 50 == 0)
			CHECK_EQ(round % 100 ? raw_switch_supervisor(0) : raw_switch_user(0), 0);
		CHECK_EQ(ring_wait(&ring, ENTRIES, 0), 0);
		for (unsigned int slot = 0; slot < ENTRIES; slot++)
			CHECK_DONE(&ring, slot, getppid());
	}
	workers_end(&ring, workers, 2);
	ring_close(&ring);
}

int main(void)
{
	struct ring ring = ring_open(ENTRIES);

	on_signal(SIGUSR1, count_signal, 0);
	enter_supervisor(0);
	check_batches(&ring);
	check_partial(&ring);
	check_workers();
	ring_close(&ring);
	return 0;
}
