// SPDX-License-Identifier: GPL-2.0-only
/*
 * Slot numbers out of range, or of a slot that is being served or was not submitted, are dropped
 * and counted; nobody waits for them.
 */
#include "ring.h"

int main(void)
{
	static const uint32_t garbage[] = {
		8, 9, 4096, 65536, 0x7fffffff, 0x80000000, 0xfffffff8, 0xffffffff,
	};
	struct ring ring = worker_ring_open(8);
	struct worker workers[2] = { 0 };
	int pipe_fd[2];
	char byte;

	MUST(pipe(pipe_fd));
	worker_start(&workers[0], &ring);
	worker_start(&workers[1], &ring);
	for (unsigned int i = 0; i < 8; i++)
		ring_submit(&ring, garbage[i]);
	CHECK_EQ(ring_wait(&ring, 8, 0), 0);
	CHECK_EQ(ring_stats(&ring).dropped, 8);
	CHECK_EQ(ring_stats(&ring).executed, 0);

	ring_queue(&ring, 3, SYS_read, pipe_fd[0], &byte, 1);
	CHECK_EQ(ring_wait(&ring, 1, 1), 1);
	while (ring_state(&ring, 3) != TL_RUNNING)
		sched_yield();
	for (unsigned int i = 0; i < 5; i++)
		ring_submit(&ring, 3);
	CHECK_EQ(ring_wait(&ring, 5, 1), 1);
	CHECK_EQ(ring_stats(&ring).dropped, 13);
	CHECK_EQ(write(pipe_fd[1], "x", 1), 1);
	CHECK_EQ(ring_wait(&ring, 0, 0), 0);
	CHECK_DONE(&ring, 3, 1);
	CHECK_EQ(ring_stats(&ring).executed, 1);

	/* Done, and never filled in. */
	ring_submit(&ring, 3);
	ring_submit(&ring, 6);
	CHECK_EQ(ring_wait(&ring, 2, 0), 0);
	CHECK_EQ(ring_stats(&ring).dropped, 15);
	CHECK_EQ(ring_state(&ring, 6), TL_FREE);
	CHECK_EQ(ring_stats(&ring).executed, 1);
	workers_end(&ring, workers, 2);
	return 0;
}
