/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * clock.h - how a workload reads a clock, and lets time pass. How long is the workload's business.
 */
#ifndef EVAL_CLOCK_H
#define EVAL_CLOCK_H

#include <stdint.h>
#include <time.h>

#define NS_PER_S 1000000000ull
#define NS_PER_MS 1000000u
#define MS_PER_S 1000u

static inline uint64_t clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static inline uint64_t now_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

static inline void sleep_ms(unsigned int ms)
{
	const struct timespec pause = { ms / MS_PER_S, ms % MS_PER_S * (long)NS_PER_MS };

	nanosleep(&pause, NULL);
}

#endif /* EVAL_CLOCK_H */
