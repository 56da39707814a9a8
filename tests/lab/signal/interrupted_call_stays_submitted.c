// SPDX-License-Identifier: GPL-2.0-only
/*
 * A signal arrives while a later call of a batch sleeps. With SA_RESTART the batch returns the
 * count of the calls before it, and the call is made when it is submitted again. Without it the
 * call is complete with -EINTR, as a plain one: a program that waits for that to end would wait for
 * ever.
 */
#include "ring.h"

int main(void)
{
	struct ring ring = ring_open(4);
	int pipe_fd[2];
	char byte;
	pid_t waker;

	MUST(pipe(pipe_fd));
	for (int flags = 0; flags <= SA_RESTART; flags += SA_RESTART) {
		handled = 0;
		on_signal(SIGALRM, count_signal, flags);
		ring_put(&ring, 0, SYS_getppid);
		ring_put(&ring, 1, SYS_read, pipe_fd[0], &byte, 1);
		ring_put(&ring, 2, SYS_getpid);
		waker = signal_when_asleep(SIGALRM);
		CHECK_EQ(ring_batch(&ring, 0, 3), flags ? 1 : 2);
		CHECK_EXITED(child_wait(waker), 0);
		CHECK_EQ(handled, 1);
		CHECK_DONE(&ring, 0, getppid());
		CHECK_EQ(ring_state(&ring, 2), TL_SUBMITTED);
		if (!flags) {
			CHECK_DONE(&ring, 1, -EINTR);
			ring_put(&ring, 1, SYS_read, pipe_fd[0], &byte, 1);
		}
		CHECK_EQ(ring_state(&ring, 1), TL_SUBMITTED);
		CHECK_EQ(write(pipe_fd[1], "z", 1), 1);
		CHECK_EQ(ring_batch(&ring, 1, 2), 2);
		CHECK_DONE(&ring, 1, 1);
		CHECK_DONE(&ring, 2, getpid());
	}
	return 0;
}
