// SPDX-License-Identifier: GPL-2.0-only
/*
 * A signal ends a wait with -EINTR, under SA_RESTART too: its notify has happened and must not
 * happen again. Waiting goes on with a wait that notifies nothing.
 */
#include "ring.h"

int main(void)
{
	struct ring ring = worker_ring_open(4);
	struct worker worker = { 0 };
	int pipe_fd[2];
	char byte;
	pid_t waker;

	MUST(pipe(pipe_fd));
	worker_start(&worker, &ring);
	for (int flags = 0; flags <= SA_RESTART; flags += SA_RESTART) {
		on_signal(SIGALRM, count_signal, flags);
		ring_queue(&ring, 0, SYS_read, pipe_fd[0], &byte, 1);
		waker = signal_when_asleep(SIGALRM);
		CHECK_EQ(ring_wait(&ring, 1, 0), -EINTR);
		CHECK_EXITED(child_wait(waker), 0);
		CHECK_EQ(write(pipe_fd[1], "x", 1), 1);
		CHECK_EQ(ring_wait(&ring, 0, 0), 0);
		CHECK_DONE(&ring, 0, 1);
	}
	CHECK_EQ(ring_stats(&ring).executed, 2);
	workers_end(&ring, &worker, 1);
	return 0;
}
