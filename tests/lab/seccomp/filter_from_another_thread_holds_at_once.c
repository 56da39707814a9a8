/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A thread sleeps in a batch when another gives all threads a filter: the next request of the
 * batch is under it.
 */
#include "filter.h"
#include "ring.h"

static struct ring ring;
static int pipe_fd[2];
static pid_t tid;

static void *batcher(void *arg)
{
	static char byte;

	(void)arg;
	ring_put(&ring, 0, SYS_getppid);
	ring_put(&ring, 1, SYS_read, pipe_fd[0], &byte, 1);
	ring_put(&ring, 2, SYS_getppid);
	ring_put(&ring, 3, SYS_getpid);
	__atomic_store_n(&tid, (pid_t)sys(SYS_gettid), __ATOMIC_RELEASE);
	return (void *)ring_batch(&ring, 0, 4);
}

int main(void)
{
	pthread_t thread;
	void *done;

	ring = ring_open(4);
	MUST(pipe(pipe_fd));
	CHECK_EQ(pthread_create(&thread, NULL, batcher, NULL), 0);
	while (!__atomic_load_n(&tid, __ATOMIC_ACQUIRE))
		sched_yield();
	wait_asleep(tid);
	filter_install(SYS_getppid, FILTER_ANY_ARGUMENT, SECCOMP_RET_ERRNO | EACCES,
		       SECCOMP_FILTER_FLAG_TSYNC);
	CHECK_EQ(write(pipe_fd[1], "x", 1), 1);
	CHECK_EQ(pthread_join(thread, &done), 0);
	CHECK_EQ((long)done, 4);
	CHECK(ring_result(&ring, 0) > 0);
	CHECK_DONE(&ring, 1, 1);
	CHECK_DONE(&ring, 2, -EACCES);
	CHECK_DONE(&ring, 3, getpid());
	return 0;
}
