// SPDX-License-Identifier: GPL-2.0-only
/*
 * Parallel calls: a burst of quick calls wakes few of many workers, and calls that block delay none
 * behind them as long as a worker is left, also where one call waits for what a later one does.
 */
#include "lib_check.h"

#include <pthread.h>

#define ENTRIES 64u
#define WORKERS 16u
#define ROUNDS 20u

static uint64_t sleeps(struct tl_psc *psc)
{
	struct tl_stats stats = { .size = sizeof(stats) };

	CHECK_EQ(tl_psc_get_stats(psc, &stats), 0);
	return stats.sleeps;
}

/* Each worker that was woken goes to sleep again, and that is counted. */
static void quick_calls_wake_few_workers(void)
{
	struct tl_psc *psc = psc_new(ENTRIES, 0, WORKERS);
	uint64_t least = UINT64_MAX;

	for (unsigned int round = 0; round < ROUNDS; round++) {
		uint64_t before;

		usleep(20000);
		before = sleeps(psc);
		for (unsigned int i = 0; i < ENTRIES; i++) {
			int slot = TL_PSC_ADD(psc, SYS_getppid);

			CHECK(slot >= 0);
		}
		CHECK_EQ(tl_psc_notify(psc), ENTRIES);
		CHECK_EQ(tl_psc_wait(psc, 0), 0);
		for (unsigned int slot = 0; slot < ENTRIES; slot++)
			CHECK_EQ(tl_psc_result(psc, slot, NULL), 1);
		usleep(20000);
		if (sleeps(psc) - before < least)
			least = sleeps(psc) - before;
	}
	tl_psc_destroy(psc);
	/* The worker that makes the calls, the watcher, and one that takes part. */
	CHECK_WITHIN(least, 1, 3);
}

static void blocked_calls_delay_none(unsigned int blocked)
{
	struct tl_psc *psc = psc_new(ENTRIES, 0, WORKERS);
	char bytes[WORKERS];
	int pipes[2];

	MUST(pipe(pipes));
	for (unsigned int i = 0; i < blocked; i++)
		CHECK(TL_PSC_ADD(psc, SYS_read, pipes[0], &bytes[i], 1) >= 0);
	CHECK_EQ(tl_psc_notify(psc), blocked);
	for (unsigned int round = 0; round < ROUNDS; round++) {
		int slot = TL_PSC_ADD(psc, SYS_getppid);

		CHECK_EQ(tl_psc_wait(psc, blocked), blocked);
		CHECK_EQ(tl_psc_result(psc, (unsigned int)slot, NULL), 1);
	}
	for (unsigned int i = 0; i < blocked; i++)
		MUST(write(pipes[1], "x", 1));
	CHECK_EQ(tl_psc_wait(psc, 0), 0);
	tl_psc_destroy(psc);
	close(pipes[0]);
	close(pipes[1]);
}

/* Of calls that are submitted at once, each reads what the next one writes. */
static void calls_may_wait_for_later_ones(void)
{
	struct tl_psc *psc = psc_new(ENTRIES, 0, WORKERS);
	int pipes[WORKERS][2];
	char bytes[WORKERS];

	for (unsigned int i = 0; i < WORKERS - 1; i++) {
		MUST(pipe(pipes[i]));
		CHECK(TL_PSC_ADD(psc, SYS_read, pipes[i][0], &bytes[i], 1) >= 0);
	}
	for (unsigned int i = 0; i < WORKERS - 1; i++)
		CHECK(TL_PSC_ADD(psc, SYS_write, pipes[i][1], "x", 1) >= 0);
	CHECK_EQ(tl_psc_wait(psc, 0), 0);
	for (unsigned int i = 0; i < WORKERS - 1; i++) {
		close(pipes[i][0]);
		close(pipes[i][1]);
	}
	tl_psc_destroy(psc);
}

int main(void)
{
	alarm(120);
	quick_calls_wake_few_workers();
	for (unsigned int blocked = 1; blocked < WORKERS; blocked += 7)
		blocked_calls_delay_none(blocked);
	for (unsigned int round = 0; round < ROUNDS; round++)
		calls_may_wait_for_later_ones();
	return 0;
}
