// SPDX-License-Identifier: GPL-2.0-only
/*
 * The batch is flushed at N calls, when nothing is ready, at the deadline, or when the ring has no
 * room: each is counted, and none more often than it must. The time of a tl_wait() counts from that
 * wait: what threads work before it or behind it makes it neither shorter nor longer.
 */
#include "lib_check.h"

#define MS 1000000l

static int64_t result;
static int steps;

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

/* ---- Waits ------------------------------------------------------------------------------- */

static void note(struct tl_thread *self, void *arg)
{
	(void)self;
	(void)arg;
	steps++;
}

static struct tl_thread *waiter(struct tl_sched *sched, tl_entry entry, void *arg)
{
	struct tl_thread *thread;

	CHECK_EQ(tl_thread_create(sched, &thread, entry, arg, 1), 0);
	return thread;
}

static void work(struct tl_thread *self, void *arg)
{
	const struct timespec time = { .tv_nsec = *(const long *)arg };

	(void)self;
	MUST(nanosleep(&time, NULL));
}

static void wait_a_second(struct tl_thread *self, void *arg)
{
	*(uint64_t *)arg = now_us();
	CHECK_EQ(tl_wait(tl_thread_sched(self), tl_then(self, note, 1), NULL, -1, 0, 1000 * MS),
		 0);
}

/* A time counts from its own wait, though another thread has worked between an older one and it. */
static void work_makes_no_time_shorter(void)
{
	struct tl_sched *sched = sched_new(0, 0, 0);
	long work_ns = 300 * MS;
	uint64_t start_us;

	steps = 0;
	CHECK_EQ(tl_wait(sched, waiter(sched, note, NULL), NULL, -1, 0, 1000 * MS), 0);
	CHECK_EQ(tl_wait(sched, waiter(sched, note, NULL), NULL, -1, 0, MS), 0);
	CHECK_EQ(tl_thread_create(sched, NULL, work, &work_ns, 0), 0);
	CHECK_EQ(tl_thread_create(sched, NULL, wait_a_second, &start_us, 0), 0);
	CHECK_EQ(tl_sched_run(sched), 0);
	CHECK(now_us() - start_us >= 1000000);
	CHECK_EQ(steps, 3);
	tl_sched_destroy(sched);
}

/* Nor longer: the sleep behind it takes what is left. Some try shows it on a busy machine, too. */
static void work_makes_no_time_longer(void)
{
	long work_ns = 150 * MS;
	uint64_t took_us = 0;

	for (int tries = 0; tries < 20; tries++) {
		struct tl_sched *sched = sched_new(0, 0, 0);
		uint64_t start_us = now_us();

		CHECK_EQ(tl_wait(sched, waiter(sched, note, NULL), NULL, -1, 0, 200 * MS), 0);
		CHECK_EQ(tl_wait(sched, waiter(sched, work, &work_ns), NULL, -1, 0, 5 * MS), 0);
		CHECK_EQ(tl_sched_run(sched), 0);
		took_us = now_us() - start_us;
		CHECK(took_us >= 200000);
		tl_sched_destroy(sched);
		if (took_us < 300000)
			break;
	}
	CHECK(took_us < 300000);
}

int main(void)
{
	flush_at_n();
	flush_when_idle();
	flush_at_deadline();
	flush_when_ring_is_full();
	work_makes_no_time_shorter();
	work_makes_no_time_longer();
	return 0;
}
