/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Declares the run times of the target's virtual processors, from /proc/TID/schedstat, at most once
 * a millisecond. While one of them waits for a real processor, its memory shows an old state, and
 * samples are marked as frozen.
 */
#ifndef SAMPLER_THREADS_H
#define SAMPLER_THREADS_H

#include <stdint.h>
#include <sys/types.h>

#include "limits.h"

struct threads {
	unsigned int count;
	uint64_t asked_at_ns;
	uint64_t frozen;		/* one bit each */
	uint64_t run_ns[THREADS_MAX];
	uint64_t moved_at_ns[THREADS_MAX];	/* run_ns was another before, or it slept */
	int statistics[THREADS_MAX];
	int state[THREADS_MAX];
};

/* 0, or -errno with *which the number of the thread that cannot be asked. */
int threads_open(struct threads *threads, const pid_t *tids, unsigned int count, pid_t *which);
void threads_close(struct threads *threads);
void threads_update(struct threads *threads, uint64_t now_ns);

#endif
