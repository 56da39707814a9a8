/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Reads the system's clocks, which give the times of samples.
 */
#ifndef SAMPLER_CLOCK_H
#define SAMPLER_CLOCK_H

#include <stdint.h>
#include <time.h>

#define NS_PER_S 1000000000ull

static inline uint64_t clock_read(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return (uint64_t)time.tv_sec * NS_PER_S + (uint64_t)time.tv_nsec;
}

static inline uint64_t now_ns(void)
{
	return clock_read(CLOCK_MONOTONIC);
}

#endif
