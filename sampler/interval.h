/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Declares the measurement of how closely and how evenly reads of a source can follow one another:
 * the paper's Fig. 2 and 3, which eval/peek_interval makes from it.
 */
#ifndef SAMPLER_INTERVAL_H
#define SAMPLER_INTERVAL_H

#include <stdint.h>
#include <stdio.h>

#include "source.h"

#define INTERVAL_READS_MAX (16u << 20)

struct interval_test {
	uint64_t address;
	uint32_t bytes;
	uint32_t reads;
};

/* Reads back to back and prints one JSON object a line. 0, or -errno with `error` filled. */
int interval_measure(const struct interval_test *test, struct source *source, FILE *out,
		     char *error);

#endif
