/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Declares the schedule: deadlines at fixed times after the first one, however long each sample
 * takes.
 */
#ifndef SAMPLER_SCHEDULE_H
#define SAMPLER_SCHEDULE_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

struct schedule {
	uint64_t first_ns;	/* deadline of slot 0 */
	uint64_t interval_ns;
	uint64_t spin_ns;	/* the part of each wait in which the clock is polled */
	uint64_t next;		/* slot */
};

/* The slot to sample at `now_ns`: the next one, or the current one if some have passed. */
uint64_t schedule_slot(struct schedule *schedule, uint64_t now_ns);

static inline uint64_t schedule_deadline(const struct schedule *schedule, uint64_t slot)
{
	return schedule->first_ns + slot * schedule->interval_ns;
}

/* Waits, but not for long: true when `deadline_ns` has come, or *stop. */
bool schedule_wait(const struct schedule *schedule, uint64_t deadline_ns,
		   const volatile sig_atomic_t *stop);

#endif
