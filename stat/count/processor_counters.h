/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The processor's own counters, where the kernel offers them. They count the events that the model
 * gives, in user mode and in the kernel, around a region of this program or over a whole command.
 * Rows have the model's form and its names of events (docs/model.md).
 */
#ifndef TRAPLESS_STAT_COUNTERS_H
#define TRAPLESS_STAT_COUNTERS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#define TL_COUNTERS_MAX 12
#define TL_COUNTERS_ERROR_MAX 256

/* An event as perf_event_open takes it, and what a column calls it. */
struct tl_counter_event {
	const char *name;
	uint32_t type;
	uint64_t config;
};

struct tl_counters {
	unsigned int count;
	struct tl_counter_event events[TL_COUNTERS_MAX];
	int files[2][TL_COUNTERS_MAX]; /* user, kernel */
	uint64_t rows;
};

struct tl_counter_values {
	uint64_t counts[2][TL_COUNTERS_MAX];
	double counted; /* share of the time in which the event counted least was counted */
};

/*
 * What the kernel counts by itself on any machine: page faults, switches of tasks and, where it
 * lets tracepoints be read, system calls.
 */
extern const struct tl_counter_event tl_counters_software[];

/*
 * Open this processor's events and the kernel's own, or those of `events` (ended by a NULL name),
 * for a thread; the calling one, if `thread` is 0. `children`: also for what it forks, from its
 * next exec on. Events that the processor lacks are left out. 0, or -errno with the reason in
 * `error`.
 */
int tl_counters_open(struct tl_counters *counters, pid_t thread, bool children,
		     const struct tl_counter_event *events, char error[TL_COUNTERS_ERROR_MAX]);
void tl_counters_close(struct tl_counters *counters);

/* Begin to count from 0; end counting and read. Return 0 or -errno. */
int tl_counters_begin(struct tl_counters *counters);
int tl_counters_end(struct tl_counters *counters, struct tl_counter_values *values);
/* Reads the counts so far, extrapolated where events had to take turns. */
int tl_counters_read(struct tl_counters *counters, struct tl_counter_values *values);

/* Write the first line of the output, and one line for each region. */
void tl_counters_header(const struct tl_counters *counters, FILE *output);
void tl_counters_row(struct tl_counters *counters, const struct tl_counter_values *values,
		     uint64_t label, FILE *output);

#endif
