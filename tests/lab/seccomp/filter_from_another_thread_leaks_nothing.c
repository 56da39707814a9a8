/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The attack: threads share their descriptors, so the kernel holds the ring's file for the
 * entering call. While a thread sleeps in a batch, another gives all threads a filter that ends
 * the thread at the batch's next request. The reference must be put, though no filter was there at
 * the entry.
 */
#include "filter.h"
#include "module.h"
#include "ring.h"

#define ROUNDS 100

static struct ring ring;
static int pipe_fd[2];
static pid_t tid;

static void *batcher(void *arg)
{
	static char byte;
	long done;

	(void)arg;
	ring_put(&ring, 0, SYS_read, pipe_fd[0], &byte, 1);
	ring_put(&ring, 1, SYS_getppid);
	__atomic_store_n(&tid, (pid_t)sys(SYS_gettid), __ATOMIC_RELEASE);
	done = ring_batch(&ring, 0, 2);
	FAIL("survived: the batch returned %ld", done);
}

static void die_in_batch(void)
{
	pthread_t thread;

	ring = ring_open(4);
	MUST(pipe(pipe_fd));
	CHECK_EQ(pthread_create(&thread, NULL, batcher, NULL), 0);
	filter_once_asleep(&tid, SYS_getppid);
	CHECK_EQ(write(pipe_fd[1], "x", 1), 1);
	CHECK_EQ(pthread_join(thread, NULL), 0);
}

int main(void)
{
	int before = module_references();

	for (int round = 0; round < ROUNDS; round++)
		CHECK_EXITED(child_run(die_in_batch), 0);
	module_references_fall_to(before);
	return 0;
}
