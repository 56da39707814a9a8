/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How a workload reads a clock, the sampler's way, and lets time pass. How long is the workload's
 * business.
 */
#ifndef EVAL_CLOCK_H
#define EVAL_CLOCK_H

#include "../../../sampler/clock.h"

#define NS_PER_MS 1000000u
#define MS_PER_S 1000u

static inline void sleep_ms(unsigned int ms)
{
	const struct timespec pause = { ms / MS_PER_S, ms % MS_PER_S * (long)NS_PER_MS };

	nanosleep(&pause, NULL);
}

#endif /* EVAL_CLOCK_H */
