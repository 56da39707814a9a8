// SPDX-License-Identifier: GPL-2.0-only
/*
 * A call that the kernel would continue with what is left of its time (nanosleep, poll) is done
 * with -EINTR after a signal, as a plain one is after a handler, and tells what is left.
 */
#include <poll.h>

#include "ring.h"

int main(void)
{
	struct ring ring = ring_open(4);
	struct timespec pause = { .tv_sec = 100000 }, left = { 0 };
	struct pollfd polled = { .events = POLLIN };
	int pipe_fd[2];
	pid_t waker;

	MUST(pipe(pipe_fd));
	polled.fd = pipe_fd[0];
	on_signal(SIGALRM, count_signal, SA_RESTART);

	ring_put(&ring, 0, SYS_nanosleep, &pause, &left);
	ring_put(&ring, 1, SYS_getpid);
	waker = signal_when_asleep(SIGALRM);
	CHECK_EQ(ring_batch(&ring, 0, 2), 1);
	CHECK_EXITED(child_wait(waker), 0);
	CHECK_DONE(&ring, 0, -EINTR);
	CHECK_WITHIN(left.tv_sec, 100000 - WAIT_MS / 1000, 99999);
	CHECK_EQ(ring_state(&ring, 1), TL_SUBMITTED);

	ring_put(&ring, 0, SYS_getppid);
	ring_put(&ring, 1, SYS_poll, &polled, 1, 100000000);
	ring_put(&ring, 2, SYS_getpid);
	waker = signal_when_asleep(SIGALRM);
	CHECK_EQ(ring_batch(&ring, 0, 3), 2);
	CHECK_EXITED(child_wait(waker), 0);
	CHECK_DONE(&ring, 1, -EINTR);

	ring_put(&ring, 0, SYS_pause);
	waker = signal_when_asleep(SIGALRM);
	CHECK_EQ(ring_batch(&ring, 0, 1), 1);
	CHECK_EXITED(child_wait(waker), 0);
	CHECK_DONE(&ring, 0, -EINTR);
	return 0;
}
