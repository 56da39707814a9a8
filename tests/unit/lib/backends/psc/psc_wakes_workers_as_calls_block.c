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
#define BLOCKED 3u
#define BURST 50u
#define QUICK (4 * BURST)	/* more than make an eager ring patient */

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

/* Of calls that are submitted at once, each reads what a later one writes. */
static void make_calls_that_wait_for_later_ones(struct tl_psc *psc)
{
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
}

static void calls_may_wait_for_later_ones(void)
{
	struct tl_psc *psc = psc_new(ENTRIES, 0, WORKERS);

	make_calls_that_wait_for_later_ones(psc);
	tl_psc_destroy(psc);
}

/*
 * Calls that block make the ring eager, and quick calls make it patient again. Then one of those
 * that block ends, which makes it eager a second time, while requests are waiting that a patient
 * ring has notified: workers must be woken for these, too.
 */
static void late_end_delays_none(void)
{
	struct tl_psc *psc = psc_new(ENTRIES, 0, WORKERS);
	int pipes[2], slots[BURST];
	char bytes[BLOCKED];

	MUST(pipe(pipes));
	for (unsigned int i = 0; i < BLOCKED; i++)
		CHECK(TL_PSC_ADD(psc, SYS_read, pipes[0], &bytes[i], 1) >= 0);
	CHECK_EQ(tl_psc_notify(psc), BLOCKED);
	usleep(5000);
	/* The pipe's readers wait in a queue: the last one that began stays. */
	for (unsigned int left = BLOCKED - 1; left; left--) {
		MUST(write(pipes[1], "x", 1));
		CHECK_EQ(tl_psc_wait(psc, left), left);
	}
	for (unsigned int i = 0; i < QUICK; i++) {
		slots[i % BURST] = TL_PSC_ADD(psc, SYS_getppid);
		if ((i + 1) % BURST)
			continue;
		CHECK_EQ(tl_psc_wait(psc, 1), 1);
		for (unsigned int k = 0; k < BURST; k++)
			CHECK_EQ(tl_psc_result(psc, (unsigned int)slots[k], NULL), 1);
	}
	MUST(write(pipes[1], "x", 1));
	make_calls_that_wait_for_later_ones(psc);
	tl_psc_destroy(psc);
	close(pipes[0]);
	close(pipes[1]);
}

int main(void)
{
	alarm(120);
	quick_calls_wake_few_workers();
	for (unsigned int blocked = 1; blocked < WORKERS; blocked += 7)
		blocked_calls_delay_none(blocked);
	for (unsigned int round = 0; round < ROUNDS; round++)
		calls_may_wait_for_later_ones();
	for (unsigned int round = 0; round < ROUNDS; round++)
		late_end_delays_none();
	return 0;
}
