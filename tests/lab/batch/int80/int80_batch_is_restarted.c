// SPDX-License-Identifier: GPL-2.0-only
/* A batch entered by the 32-bit gate is restarted after a handler, and interrupted without. */
#include "int80.h"

static int pipe_fd[2];

static void writes(int signal)
{
	(void)signal;
	sys(SYS_write, pipe_fd[1], "x", 1);
}

int main(void)
{
	struct ring ring;
	char byte = 0;
	pid_t waker;

	int80_need();
	ring = ring_open(4);
	MUST(pipe(pipe_fd));
	on_signal(SIGALRM, writes, SA_RESTART);
	ring_put(&ring, 0, SYS_read, pipe_fd[0], &byte, 1);
	ring_put(&ring, 1, SYS_getpid);
	waker = signal_when_asleep(SIGALRM);
	CHECK_EQ(ring_batch_int80(&ring, 0, 2), 2);
	CHECK_EXITED(child_wait(waker), 0);
	CHECK_DONE(&ring, 0, 1);
	CHECK_DONE(&ring, 1, getpid());

	on_signal(SIGALRM, writes, 0);
	ring_put(&ring, 0, SYS_read, pipe_fd[0], &byte, 1);
	waker = signal_when_asleep(SIGALRM);
	CHECK_EQ(ring_batch_int80(&ring, 0, 1), -EINTR);
	CHECK_EXITED(child_wait(waker), 0);
	CHECK_EQ(ring_state(&ring, 0), TL_SUBMITTED);
	CHECK_EQ(ring_batch_int80(&ring, 0, 1), 1);
	CHECK_DONE(&ring, 0, 1);
	return 0;
}
