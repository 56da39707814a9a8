// SPDX-License-Identifier: GPL-2.0-only
/*
 * The batch is flushed at N calls, when nothing is ready, at the deadline, or when the ring has no
 * room: each is counted, and none more often than it must.
 */
#include "lib_check.h"

static int64_t result;

static void one_call(struct tl_thread *self, void *arg)
{
	(void)arg;
	CHECK_EQ(TL_CALL(tl_thread_sched(self), NULL, &result, SYS_getppid), 0);
}

static void flush_at_n(void)
{
	struct tl_sched *sched = sched_new(8, 0, 0);
	struct tl_sched_stats stats;

	for (int i = 0; i < 40; i++)
		tl_thread_create(sched, NULL, one_call, NULL, 0);
	CHECK_EQ(tl_sched_run(sched), 0);
	stats = sched_stats(sched);
	CHECK_EQ(stats.calls, 40);
	CHECK_EQ(stats.flushes_full, 5);
	CHECK_EQ(stats.flushes_idle, 0);
	CHECK_EQ(stats.flushes_deadline, 0);
	if (tl_sched_backend(sched) == TL_BACKEND_MODULE)
		CHECK_EQ(stats.crossings, 5);
	else
		CHECK_EQ(stats.crossings, 40);
	tl_sched_destroy(sched);
}

static void flush_when_idle(void)
{
	struct tl_sched *sched = sched_new(8, 0, 0);
	struct tl_sched_stats stats;

	for (int i = 0; i < 5; i++)
		tl_thread_create(sched, NULL, one_call, NULL, 0);
	result = 0;
	CHECK_EQ(tl_sched_run(sched), 0);
	CHECK_EQ(result, getppid());
	stats = sched_stats(sched);
	CHECK_EQ(stats.calls, 5);
	CHECK_EQ(stats.flushes_idle, 1);
	CHECK_EQ(stats.flushes_full, 0);
	tl_sched_destroy(sched);
}

/* A thread that always becomes ready again, for as long as the call of another is not made. */
static void spinner(struct tl_thread *self, void *arg)
{
	const uint64_t *limit_us = arg;

	CHECK(now_us() < *limit_us);
	if (!result)
		tl_thread_create(tl_thread_sched(self), NULL, spinner, arg, 0);
}

static void flush_at_deadline(void)
{
	struct tl_sched *sched = sched_new(64, 0, 2000000);
	uint64_t start_us = now_us(), limit_us = start_us + 5000000;

	result = 0;
	tl_thread_create(sched, NULL, one_call, NULL, 0);
	tl_thread_create(sched, NULL, spinner, &limit_us, 0);
	CHECK_EQ(tl_sched_run(sched), 0);
	CHECK(now_us() - start_us >= 2000);
	CHECK_EQ(sched_stats(sched).flushes_deadline, 1);
	CHECK_EQ(sched_stats(sched).flushes_idle, 0);
	tl_sched_destroy(sched);
}

static void many_calls(struct tl_thread *self, void *arg)
{
	for (int i = 0; i < 100; i++)
		one_call(self, arg);
}

static void flush_when_ring_is_full(void)
{
	struct tl_sched *sched = sched_new(16, 16, 0);
	struct tl_sched_stats stats;

	tl_thread_create(sched, NULL, many_calls, NULL, 0);
	CHECK_EQ(tl_sched_run(sched), 0);
	stats = sched_stats(sched);
	CHECK_EQ(stats.calls, 100);
	CHECK_EQ(stats.flushes_full, 6);
	CHECK_EQ(stats.flushes_idle, 1);
	tl_sched_destroy(sched);
}

int main(void)
{
	flush_at_n();
	flush_when_idle();
	flush_at_deadline();
	flush_when_ring_is_full();
	return 0;
}
