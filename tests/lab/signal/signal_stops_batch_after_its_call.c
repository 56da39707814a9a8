// SPDX-License-Identifier: GPL-2.0-only
/*
 * A signal that arrives during a call ends the batch after that call; its handler runs before
 * the next one, which is untouched and can be submitted again.
 */
#include "ring.h"

int main(void)
{
	struct ring ring = ring_open(4);

	on_signal(SIGUSR1, count_signal, SA_RESTART);
	ring_put(&ring, 0, SYS_getpid);
	ring_put(&ring, 1, SYS_kill, getpid(), SIGUSR1);
	ring_put(&ring, 2, SYS_getppid);
	ring_put(&ring, 3, SYS_getpid);
	CHECK_EQ(ring_batch(&ring, 0, 4), 2);
	CHECK_EQ(handled, 1);
	CHECK_EQ(((struct tl_program *)(void *)&ring.requests[4])->stopped, TL_STOPPED_SIGNAL);
	CHECK_DONE(&ring, 1, 0);
	CHECK_EQ(ring_state(&ring, 2), TL_SUBMITTED);
	CHECK_EQ(ring_result(&ring, 2), 0x5eed);
	CHECK_EQ(ring_state(&ring, 3), TL_SUBMITTED);
	CHECK_EQ(ring_stats(&ring).interrupted, 1);
	CHECK_EQ(ring_batch(&ring, 2, 2), 2);
	CHECK_DONE(&ring, 2, getppid());
	CHECK_EQ(handled, 1);
	return 0;
}
