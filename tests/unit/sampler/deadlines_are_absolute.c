// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Deadlines lie at fixed times after the first one: a late sample does not move those after it, and
 * slots whose time has passed are left out, not made up for.
 */
#include "check.h"
#include "clock.h"
#include "schedule.h"

static void slots_follow_the_clock(void)
{
	struct schedule schedule = { .first_ns = 1000000, .interval_ns = 100 };

	CHECK_EQ(schedule_slot(&schedule, 0), 0);
	CHECK_EQ(schedule_slot(&schedule, 1000000), 1);
	CHECK_EQ(schedule_slot(&schedule, 1000150), 2);	/* 1 was late, 2 is still to come */
	CHECK_EQ(schedule_slot(&schedule, 1000399), 3);	/* its time, if late */
	CHECK_EQ(schedule_slot(&schedule, 1000999), 9);	/* 4 to 8 are lost */
	CHECK_EQ(schedule_slot(&schedule, 1000999), 10);
	CHECK_EQ(schedule_deadline(&schedule, 10), 1001000);
}

static void waits_are_over_in_time(uint64_t spin_ns)
{
	struct schedule schedule = { .interval_ns = 2000000, .spin_ns = spin_ns };
	volatile sig_atomic_t stop = 0;
	unsigned int i;

	schedule.first_ns = now_ns() + 2000000;
	for (i = 0; i < 20; i++) {
		uint64_t slot = schedule_slot(&schedule, now_ns());
		uint64_t deadline = schedule_deadline(&schedule, slot);

		while (!schedule_wait(&schedule, deadline, &stop))
			FAIL("a short wait came in pieces");
		CHECK(now_ns() >= deadline);
	}
	CHECK(now_ns() - schedule.first_ns >= 19u * 2000000);
	/* A long wait comes in pieces, so that others can be looked after; and it can be ended. */
	CHECK(!schedule_wait(&schedule, now_ns() + 3600 * NS_PER_S, &stop));
	stop = 1;
	CHECK(schedule_wait(&schedule, now_ns() + 3600 * NS_PER_S, &stop));
}

int main(void)
{
	slots_follow_the_clock();
	waits_are_over_in_time(0);
	waits_are_over_in_time(200000);
	return 0;
}
