// SPDX-License-Identifier: GPL-2.0-only
/*
 * A worker returns to user mode for any signal, asleep or in a call; the call it leaves is served
 * by the next that enters, or by itself when it comes back.
 */
#include "ring.h"

int main(void)
{
	struct ring ring = worker_ring_open(4);
	struct worker worker = { .signals = true };
	int pipe_fd[2];
	char byte = 0;

	MUST(pipe(pipe_fd));
	for (int flags = 0; flags <= SA_RESTART; flags += SA_RESTART) {
		handled = 0;
		on_signal(SIGUSR1, count_signal, flags);
		worker_start(&worker, &ring);	/* idle */
		wait_asleep(worker.tid);
		CHECK_EQ(pthread_kill(worker.thread, SIGUSR1), 0);
		worker_join(&worker);
		CHECK_EQ(worker.result, -EINTR);
		CHECK_EQ(handled, 1);

		worker_start(&worker, &ring);	/* in a call */
		ring_queue(&ring, 1, SYS_read, pipe_fd[0], &byte, 1);
		CHECK_EQ(ring_notify(&ring, 1), 1);
		while (ring_state(&ring, 1) != TL_RUNNING)
			sched_yield();
		wait_asleep(worker.tid);
		CHECK_EQ(pthread_kill(worker.thread, SIGUSR1), 0);
		worker_join(&worker);
		CHECK_EQ(worker.result, -EINTR);
		CHECK_EQ(handled, 2);
		CHECK_EQ(ring_state(&ring, 1), TL_SUBMITTED);

		worker_start(&worker, &ring);	/* takes up what was left */
		CHECK_EQ(write(pipe_fd[1], "x", 1), 1);
		CHECK_EQ(ring_wait(&ring, 0, 0), 0);
		CHECK_DONE(&ring, 1, 1);
		CHECK_EQ(pthread_kill(worker.thread, SIGUSR1), 0);
		worker_join(&worker);
		CHECK_EQ(worker.result, -EINTR);
	}
	CHECK_EQ(ring_stats(&ring).interrupted, 6);
	CHECK_EQ(ring_stats(&ring).executed, 2);
	return 0;
}
