/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A directory of files whose attributes are all asked for, as subjects: the calls by which programs
 * do it, the parts that they are made of, and the compound call where the module is.
 */
#ifndef ESTIMATE_LISTING_H
#define ESTIMATE_LISTING_H

#include "subjects.h"

#include <trapless.h>

#define LISTING_FILES 256u

enum listing {
	LISTING_NAMES,	/* getdents64 of all */
	LISTING_STATX,	/* statx of each name */
	LISTING_REFUSED,	/* the same, with a descriptor that is none */
	LISTING_FSTAT,	/* fstat of one file for each name */
	LISTING_MODULE,	/* TL_NR_SCANDIR of all */
	LISTING_SUBJECTS
};

extern const char *const listing_names[LISTING_SUBJECTS];

/* Makes the files in `path`, which stay. Returns 0 or -errno. */
int listing_open(const char *path, struct tl_batch *module);
void listing_run(const struct subject *subject, unsigned int calls);

#endif /* ESTIMATE_LISTING_H */
