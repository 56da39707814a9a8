/* SPDX-License-Identifier: GPL-2.0-only */
/* Waiters with different numbers in mind each wake when as few are left, and not before. */
#include "ring.h"

static struct ring ring;

struct waiter {
	pthread_t thread;
	unsigned int left;
	long result;
	pid_t tid;
	int back;
};

static void *wait_main(void *arg)
{
	struct waiter *waiter = arg;

	__atomic_store_n(&waiter->tid, (pid_t)sys(SYS_gettid), __ATOMIC_RELEASE);
	waiter->result = ring_wait(&ring, 0, waiter->left);
	__atomic_store_n(&waiter->back, 1, __ATOMIC_RELEASE);
	return NULL;
}

int main(void)
{
	struct waiter waiters[3] = { { .left = 2 }, { .left = 0 }, { .left = 1 } };
	struct worker workers[3] = { 0 };
	int pipes[3][2];
	char byte;

	ring = worker_ring_open(4);
	for (unsigned int i = 0; i < 3; i++) {
		MUST(pipe(pipes[i]));
		ring_put(&ring, i, SYS_read, pipes[i][0], &byte, 1);
		ring_submit(&ring, i);
		worker_start(&workers[i], &ring);
	}
	CHECK_EQ(ring_wait(&ring, 3, 3), 3);
	for (int i = 0; i < 3; i++) {
		CHECK_EQ(pthread_create(&waiters[i].thread, NULL, wait_main, &waiters[i]), 0);
		while (!__atomic_load_n(&waiters[i].tid, __ATOMIC_ACQUIRE))
			sched_yield();
		wait_asleep(waiters[i].tid);
	}
	for (unsigned int finished = 1; finished <= 3; finished++) {
		unsigned int left = 3 - finished;

		CHECK_EQ(write(pipes[finished - 1][1], "x", 1), 1);
		for (int i = 0; i < 3; i++) {
			if (waiters[i].left != left)
				continue;
			CHECK_EQ(pthread_join(waiters[i].thread, NULL), 0);
			CHECK_EQ(waiters[i].result, left);
		}
		for (int i = 0; i < 3; i++)
			if (waiters[i].left < left)
				CHECK(!__atomic_load_n(&waiters[i].back, __ATOMIC_ACQUIRE));
	}
	workers_end(&ring, workers, 3);
	return 0;
}
