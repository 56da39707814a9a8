// SPDX-License-Identifier: GPL-2.0-only
/*
 * Threads that a switched process makes are switched too, and their calls are the process's: no
 * count is lost when they call at once on two CPUs, sleep in between and end.
 */
#include "supervisor.h"

#define THREADS 8
#define CALLS 20000

static pthread_barrier_t barrier;

static void *call_many(void *result)
{
	long *inside = result, pid = getpid();

	pthread_barrier_wait(&barrier);
	for (int i = 0; i < CALLS; i++) {
		CHECK_EQ(sys(SYS_getpid), pid);
		*inside += cpl() == 0;
	}
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	return NULL;
}

int main(void)
{
	long inside[THREADS] = { 0 }, sum = 0;
	struct tl_process before, during, after;
	pthread_t threads[THREADS];
	uint64_t deadline;

	enter_supervisor(0);
	pthread_barrier_init(&barrier, NULL, THREADS + 1);
	for (int i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, call_many, &inside[i]), 0);
	before = process_counts(getpid());
	CHECK_EQ(before.threads, THREADS + 1);
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	during = process_counts(getpid());
	CHECK_EQ(during.threads, THREADS + 1);
	CHECK_EQ(during.supervisor, THREADS + 1);
	pthread_barrier_wait(&barrier);
	for (int i = 0; i < THREADS; i++) {
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
		sum += inside[i];
	}
	CHECK_WITHIN(sum, MOST(THREADS * CALLS), THREADS * CALLS);
	/* Around them a few calls of the barriers, of the C library's thread exit and ours. */
	CHECK_WITHIN(calls_of(&during) - calls_of(&before), THREADS * CALLS,
		     THREADS * CALLS + 20 * THREADS);
	deadline = now_ms() + WAIT_MS;
	do {	/* a joined thread has a few instructions left */
		after = process_counts(getpid());
		CHECK(now_ms() < deadline);
	} while (after.threads > 1);
	CHECK_EQ(after.threads, 1);
	CHECK(calls_of(&after) > calls_of(&during));
	return 0;
}
