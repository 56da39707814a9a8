// SPDX-License-Identifier: GPL-2.0-only
/*
 * TL_IOC_EXIT: idle workers return what they served, a call under way finishes, waiters and all
 * that come later are told -ESHUTDOWN, requests not begun stay as they are.
 */
#include "ring.h"

int main(void)
{
	struct ring ring = worker_ring_open(4);
	struct caller waiter;
	struct worker workers[2] = { 0 }, late = { 0 };
	int pipe_fd[2];
	char byte;

	MUST(pipe(pipe_fd));
	worker_start(&workers[0], &ring);
	worker_start(&workers[1], &ring);
	ring_queue(&ring, 0, SYS_read, pipe_fd[0], &byte, 1);
	ring_queue(&ring, 1, SYS_read, pipe_fd[0], &byte, 1);
	ring_queue(&ring, 2, SYS_getpid);
	CHECK_EQ(ring_notify(&ring, 3), 3);
	while (ring_state(&ring, 0) != TL_RUNNING || ring_state(&ring, 1) != TL_RUNNING)
		sched_yield();
	caller_start(&waiter, &ring, TL_WAIT(0, 0), TL_ENTER_WAIT);

	CHECK_EQ(ring_ioctl(&ring, TL_IOC_EXIT), 0);
	CHECK_EQ(caller_join(&waiter), -ESHUTDOWN);
	CHECK_EQ(ring_notify(&ring, 1), -ESHUTDOWN);
	CHECK_EQ(ring_wait(&ring, 0, 0), -ESHUTDOWN);
	CHECK_EQ(ring_state(&ring, 0), TL_RUNNING);
	CHECK_EQ(write(pipe_fd[1], "12", 2), 2);
	worker_join(&workers[0]);
	worker_join(&workers[1]);
	CHECK_EQ(workers[0].result, 1);
	CHECK_EQ(workers[1].result, 1);
	CHECK_DONE(&ring, 0, 1);
	CHECK_DONE(&ring, 1, 1);
	CHECK_EQ(ring_state(&ring, 2), TL_SUBMITTED);
	worker_start(&late, &ring);
	worker_join(&late);
	CHECK_EQ(late.result, -ESHUTDOWN);
	CHECK_EQ(ring_ioctl(&ring, TL_IOC_EXIT), 0);
	return 0;
}
