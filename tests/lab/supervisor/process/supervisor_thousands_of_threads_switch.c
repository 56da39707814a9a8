// SPDX-License-Identifier: GPL-2.0-only
/*
 * A process with 2,000 threads is switched like any other: threads that it makes in supervisor mode
 * are in it, all leave it, and all come back to it, each when it wakes next. None is lost.
 */
#include "supervisor.h"

#define THREADS 2000
#define STACK_BYTES (32 << 10)
#define ROUNDS 2

static pthread_barrier_t barrier;
static int inside_when_made;

static void *sleep_again_and_again(void *unused)
{
	(void)unused;
	for (int i = 0; i < 2; i++) {
		sys(SYS_getppid);
		if (cpl() == 0) {
			__atomic_fetch_add(&inside_when_made, 1, __ATOMIC_RELAXED);
			break;
		}
	}
	for (int i = 0; i < 2 * ROUNDS + 1; i++)
		pthread_barrier_wait(&barrier);
	return NULL;
}

/* All threads wake; then until the module says that so many are in supervisor mode. */
static void wake_and_wait_for(unsigned int supervisor)
{
	uint64_t deadline = now_ms() + WAIT_MS;
	struct tl_process process = { 0 };

	pthread_barrier_wait(&barrier);
	for (;;) {
		bool known = process_find(getpid(), &process);

		if (supervisor ? known && process.supervisor == supervisor : !known)
			return;
		if (now_ms() > deadline)
			FAIL("%u of %u threads in supervisor mode, %u were to be",
			     process.supervisor, process.threads, supervisor);
		sleep_ms(1);
	}
}

int main(void)
{
	pthread_t threads[THREADS];
	pthread_attr_t attributes;
	uint64_t before_us;
	char *stacks = shared_memory((size_t)THREADS * STACK_BYTES);

	CHECK_EQ(pthread_attr_init(&attributes), 0);
	pthread_barrier_init(&barrier, NULL, THREADS + 1);
	enter_supervisor(0);
	for (int i = 0; i < THREADS; i++) {
		char *stack = stacks + (size_t)i * STACK_BYTES;

		CHECK_EQ(pthread_attr_setstack(&attributes, stack, STACK_BYTES), 0);
		CHECK_EQ(pthread_create(&threads[i], &attributes, sleep_again_and_again, NULL), 0);
	}
	CHECK_EQ(process_counts(getpid()).supervisor, THREADS + 1);
	for (int i = 0; i < ROUNDS; i++) {
		CHECK_EQ(raw_switch_user(0), 0);
		wake_and_wait_for(0);
		before_us = now_us();
		CHECK_EQ(raw_switch_supervisor(0), 0);
		printf("all threads are asked within %llu us\n",
		       (unsigned long long)(now_us() - before_us));
		wake_and_wait_for(THREADS + 1);
	}
	pthread_barrier_wait(&barrier);
	for (int i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
	CHECK_WITHIN(inside_when_made, MOST(THREADS), THREADS);
	return 0;
}
