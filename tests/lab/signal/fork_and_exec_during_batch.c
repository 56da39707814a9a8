/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Other threads fork while a batch sleeps, and one executes a program: the children run, the
 * batch's thread ends with the old program, the new one starts clean.
 */
#include "ring.h"

static struct ring ring;
static int pipe_fd[2];
static pid_t tid;

static void *batcher(void *arg)
{
	static char byte;

	(void)arg;
	ring_put(&ring, 0, SYS_read, pipe_fd[0], &byte, 1);
	ring_put(&ring, 1, SYS_read, pipe_fd[0], &byte, 1);
	__atomic_store_n(&tid, (pid_t)sys(SYS_gettid), __ATOMIC_RELEASE);
	ring_batch(&ring, 0, 2);
	FAIL("the batch returned, but nothing was written");
}

static void child(void)
{
	struct ring own = ring_open(4);

	CHECK_EQ(batch_call(&own, SYS_getpid), getpid());
}

static void forker(void)
{
	pthread_t thread;

	ring = ring_open(4);
	MUST(pipe(pipe_fd));
	CHECK_EQ(pthread_create(&thread, NULL, batcher, NULL), 0);
	while (!__atomic_load_n(&tid, __ATOMIC_ACQUIRE))
		sched_yield();
	wait_asleep(tid);
	for (int i = 0; i < 5; i++)
		CHECK_EXITED(child_run(child), 0);
	exec_stage("after");
}

int main(void)
{
	if (!strcmp(test_stage(), "after")) {
		child();
		return 0;
	}
	CHECK_EXITED(child_run(forker), 0);
	return 0;
}
