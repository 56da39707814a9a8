// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Waits for deadlines. It owns the split of each wait into sleep and polls of the clock, which the
 * plan bounds.
 */
#include "schedule.h"

#include <time.h>

#include "clock.h"
#include "limits.h"

uint64_t schedule_slot(struct schedule *schedule, uint64_t now_ns)
{
	uint64_t slot = schedule->next, due = slot;

	if (now_ns > schedule->first_ns)
		due = (now_ns - schedule->first_ns) / schedule->interval_ns;
	if (due > slot)
		slot = due;
	schedule->next = slot + 1;
	return slot;
}

bool schedule_wait(const struct schedule *schedule, uint64_t deadline_ns,
		   const volatile sig_atomic_t *stop)
{
	uint64_t now = now_ns(), wake_ns = deadline_ns - schedule->spin_ns;
	bool long_wait = wake_ns > now && wake_ns - now > WAIT_NS_MAX;
	struct timespec wake;

	if (long_wait)
		wake_ns = now + WAIT_NS_MAX;
	wake.tv_sec = (time_t)(wake_ns / NS_PER_S);
	wake.tv_nsec = (long)(wake_ns % NS_PER_S);
	if (now < wake_ns)
		while (!*stop && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &wake, NULL))
			;
	if (long_wait)
		return *stop;
	while (!*stop && now_ns() < deadline_ns)
		__builtin_ia32_pause();
	return true;
}
