/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The attack: a thread that a filter ends inside a batch has a request of io_uring under way. The
 * kernel cancels that at the beginning of the thread's end, and runs the thread's work for it
 * before the thread counts as one that ends. The batch's references must be put all the same.
 */
#include "filter.h"
#include "module.h"
#include "ring.h"
#include "uring.h"

#define ROUNDS 20

/* A request that waits for its own queue: the kernel cancels such ones when their thread ends. */
static void begin_to_wait(void)
{
	struct uring uring = uring_open();

	uring_poll(&uring, uring.fd);
}

static void *batcher(void *arg)
{
	struct ring ring = ring_open(4);
	long done;

	(void)arg;
	begin_to_wait();
	filter_call(SYS_getppid, SECCOMP_RET_KILL_THREAD);
	ring_put(&ring, 0, SYS_getpid);
	ring_put(&ring, 1, SYS_getppid);
	done = ring_batch(&ring, 0, 2);
	FAIL("survived: the batch returned %ld", done);
}

static void die_in_batch(void)
{
	pthread_t thread;

	CHECK_EQ(pthread_create(&thread, NULL, batcher, NULL), 0);
	CHECK_EQ(pthread_join(thread, NULL), 0);
}

int main(void)
{
	int before = module_references();

	for (int round = 0; round < ROUNDS; round++) {
		int status = child_run(die_in_batch);

		if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SKIP)
			return EXIT_SKIP;
		CHECK_EXITED(status, 0);
	}
	module_references_fall_to(before);
	return 0;
}
