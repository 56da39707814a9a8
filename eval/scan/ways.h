/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The ways of reading a directory, or a tree, with the attributes of all that is in it. Each way
 * adds every entry to a sum that depends on its name and attributes, so that equal sums mean equal
 * work. It owns neither files nor rows.
 */
#ifndef SCAN_WAYS_H
#define SCAN_WAYS_H

#include <stdbool.h>
#include <stdint.h>

struct job {
	const char *path;
	uint64_t entries;
	uint64_t sum;
	bool bad;	/* a call failed */
};

struct way {
	const char *name;
	bool tree;			/* it reads a tree, and not one directory */
	void (*run)(void *job);
};

extern const struct way ways[];
extern const unsigned int ways_n;

/* Opens what the ways keep. Returns why a way cannot be had, or NULL. */
void ways_open(void);
void ways_close(void);
const char *way_missing(const struct way *way);

#endif /* SCAN_WAYS_H */
