// SPDX-License-Identifier: GPL-2.0-only
/* A call that blocks holds up its batch, as it holds up a program: later calls come after it. */
#include "ring.h"

static int pipe_fd[2];

static void *writer(void *arg)
{
	wait_asleep(*(pid_t *)arg);
	MUST(write(pipe_fd[1], "x", 1));
	return NULL;
}

int main(void)
{
	struct ring ring = ring_open(8);
	struct timespec before, after, pause = { .tv_nsec = 20000000 };
	pid_t tid = (pid_t)sys(SYS_gettid);
	pthread_t thread;
	char byte = 0;

	MUST(pipe(pipe_fd));
	CHECK_EQ(pthread_create(&thread, NULL, writer, &tid), 0);
	ring_put(&ring, 0, SYS_read, pipe_fd[0], &byte, 1);
	ring_put(&ring, 1, SYS_write, pipe_fd[1], &byte, 1);
	ring_put(&ring, 2, SYS_clock_gettime, CLOCK_MONOTONIC, &before);
	ring_put(&ring, 3, SYS_nanosleep, &pause, NULL);
	ring_put(&ring, 4, SYS_clock_gettime, CLOCK_MONOTONIC, &after);
	CHECK_EQ(ring_batch(&ring, 0, 5), 5);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_DONE(&ring, 0, 1);
	CHECK_DONE(&ring, 1, 1);
	CHECK_DONE(&ring, 3, 0);
	CHECK_EQ(byte, 'x');
	byte = 0;
	CHECK_EQ(read(pipe_fd[0], &byte, 1), 1);
	CHECK_EQ(byte, 'x');
	CHECK((after.tv_sec - before.tv_sec) * 1000000000L + after.tv_nsec - before.tv_nsec >=
	      pause.tv_nsec);
	return 0;
}
