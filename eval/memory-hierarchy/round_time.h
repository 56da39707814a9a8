/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * round_time.h - the moment at which a region of the memory model begins. It stands alike to the
 * kernel's timer each time, and what the kernel had put off is done by then.
 */
#ifndef TRAPLESS_ROUND_TIME_H
#define TRAPLESS_ROUND_TIME_H

#include <stdint.h>
#include <time.h>

#define ROUND_NS 64000000ul	/* of virtual time; sleeping costs none of the emulator's */

/* Sleep until the next but one; signals do not end it. */
static inline void await_round_time(void)
{
	struct timespec time;
	uint64_t ns;

	clock_gettime(CLOCK_MONOTONIC, &time);
	ns = (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
	ns = (ns / ROUND_NS + 2) * ROUND_NS;
	time.tv_sec = (time_t)(ns / 1000000000u);
	time.tv_nsec = (long)(ns % 1000000000u);
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL))
		;
}

#endif
