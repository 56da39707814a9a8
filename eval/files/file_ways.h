/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The ways in which experiment files has jobs done, for an event loop that may not block. It owns
 * who makes the calls of a job, and how the loop learns of it.
 */
#ifndef EVAL_FILES_WAYS_H
#define EVAL_FILES_WAYS_H

#include "file_jobs.h"

enum way { PLAIN, POOL, POOL_CALLS, URING, FILES, FILES_PLAIN, WAYS };

const char *way_name(enum way way);
/* Sets the way up for so many tasks at once. Returns NULL, or why this machine does not have it. */
const char *way_open(enum way way, unsigned int tasks);
/* Has n jobs of one kind done. Returns whether the way can do this work. */
bool way_run(enum way way, struct job *jobs, unsigned int n);
void way_close(enum way way);

#endif /* EVAL_FILES_WAYS_H */
