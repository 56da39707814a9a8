// SPDX-License-Identifier: GPL-2.0-only
/*
 * A signal arrives while the first call of a batch sleeps. With SA_RESTART the kernel restarts the
 * batch like the call; without it the batch is -EINTR and the request can be submitted again.
 */
#include "ring.h"

static int pipe_fd[2];

static void writes(int signal)
{
	(void)signal;
	handled++;
	sys(SYS_write, pipe_fd[1], "x", 1);
}

int main(void)
{
	struct ring ring = ring_open(4);
	char byte = 0;
	pid_t waker;

	MUST(pipe(pipe_fd));
	ring_put(&ring, 0, SYS_read, pipe_fd[0], &byte, 1);
	ring_put(&ring, 1, SYS_getpid);
	on_signal(SIGALRM, writes, SA_RESTART);
	waker = signal_when_asleep(SIGALRM);
	CHECK_EQ(ring_batch(&ring, 0, 2), 2);
	CHECK_EXITED(child_wait(waker), 0);
	CHECK_EQ(handled, 1);
	CHECK_DONE(&ring, 0, 1);
	CHECK_DONE(&ring, 1, getpid());
	CHECK_EQ(byte, 'x');

	handled = 0;
	ring_put(&ring, 0, SYS_read, pipe_fd[0], &byte, 1);
	ring_put(&ring, 1, SYS_getpid);
	on_signal(SIGALRM, count_signal, 0);
	waker = signal_when_asleep(SIGALRM);
	CHECK_EQ(ring_batch(&ring, 0, 2), -EINTR);
	CHECK_EXITED(child_wait(waker), 0);
	CHECK_EQ(handled, 1);
	CHECK_EQ(ring_state(&ring, 0), TL_SUBMITTED);
	CHECK_EQ(ring_state(&ring, 1), TL_SUBMITTED);
	CHECK_EQ(write(pipe_fd[1], "y", 1), 1);
	CHECK_EQ(ring_batch(&ring, 0, 2), 2);
	CHECK_DONE(&ring, 0, 1);
	CHECK_EQ(byte, 'y');
	return 0;
}
