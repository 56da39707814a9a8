/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Random numbers that a seed repeats: xorshift64*, by Vigna. Each thread uses a state of its own;
 * nothing is locked.
 */
#ifndef TL_TEST_RANDOM_H
#define TL_TEST_RANDOM_H

#include "check.h"

struct random {
	uint64_t state;		/* never 0 */
};

static inline struct random random_seeded(uint64_t seed)
{
	/* Neighbouring seeds must not give neighbouring sequences. */
	seed = (seed ^ (seed >> 30)) * 0xbf58476d1ce4e5b9u;
	seed = (seed ^ (seed >> 27)) * 0x94d049bb133111ebu;
	return (struct random){ seed ? seed : 1 };
}

static inline uint64_t random_next(struct random *random)
{
	random->state ^= random->state >> 12;
	random->state ^= random->state << 25;
	random->state ^= random->state >> 27;
	return random->state * 0x2545f4914f6cdd1du;
}

/* 0 .. bound - 1 */
static inline uint32_t random_below(struct random *random, uint32_t bound)
{
	return (uint32_t)((random_next(random) >> 32) * bound >> 32);
}

/* The seed of a run: TL_SEED, or else the clock. Prints it, so that somebody can repeat the run. */
static inline uint64_t random_choose_seed(void)
{
	const char *given = getenv("TL_SEED");
	uint64_t seed = given ? strtoull(given, NULL, 0) : now_us();

	fprintf(stderr, "TL_SEED=%llu\n", (unsigned long long)seed);
	return seed;
}

#endif /* TL_TEST_RANDOM_H */
