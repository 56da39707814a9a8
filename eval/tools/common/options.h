/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The command-line options that all workloads share. Each workload adds its own and owns what they
 * mean; this file owns how the shared ones are written and bounded.
 */
#ifndef EVAL_OPTIONS_H
#define EVAL_OPTIONS_H

#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>

#include "measure.h"

#define OPTIONS_REPEATS_MAX 1000

struct options {
	enum measure_kind kind;
	const char *calls, *mechanisms, *directory;	/* the first two: lists of names */
	const char *polled;	/* calls that are also made by a polling thread */
	unsigned int sizes[MEASURE_LIST_MAX], size_count;
	unsigned int repeats;
	uint64_t seed;
};

/* Rows of a long-option table; the letters k c m n r s d p are taken. */
#define OPTIONS_SHARED \
	{ "kind", required_argument, NULL, 'k' }, { "calls", required_argument, NULL, 'c' }, \
	{ "mechanisms", required_argument, NULL, 'm' }, \
	{ "sizes", required_argument, NULL, 'n' }, { "repeats", required_argument, NULL, 'r' }, \
	{ "seed", required_argument, NULL, 's' }, { "directory", required_argument, NULL, 'd' }, \
	{ "polled", required_argument, NULL, 'p' }

#define OPTIONS_SHARED_USAGE \
	"[--kind counted|measured] [--calls LIST] [--polled LIST] [--mechanisms LIST] " \
	"[--sizes LIST] [--repeats N] [--seed N] [--directory DIR]"

/* Takes one shared option; false when the letter is not one of them. */
bool options_take(struct options *options, int letter, const char *value, unsigned int size_max);

#endif /* EVAL_OPTIONS_H */
