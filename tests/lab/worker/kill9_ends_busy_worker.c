// SPDX-License-Identifier: GPL-2.0-only
/* kill -9 ends a process whose main thread is a worker inside a call, with others beside it. */
#include "kill9.h"

static void body(void)
{
	struct timespec pause = { .tv_sec = 100 };
	struct ring ring = ring_open_spin(8, TL_SETUP_WORKERS, TL_SPIN_US_MAX);
	struct worker others[2] = { 0 };

	for (unsigned int slot = 0; slot < 8; slot++)
		ring_queue(&ring, slot, SYS_nanosleep, &pause, NULL);
	CHECK_EQ(ring_notify(&ring, 8), 8);
	worker_start(&others[0], &ring);
	worker_start(&others[1], &ring);
	kill9_say_ready();
	ring_ioctl(&ring, TL_IOC_ENTER);
}

int main(void)
{
	check_kill9_ends(body);
	return 0;
}
