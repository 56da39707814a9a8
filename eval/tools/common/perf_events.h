/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The processor's own counters around a measured run: instructions, clocks, misses of caches and
 * TLB, where the kernel offers them, and what the kernel counts by itself. A run is made once more
 * for each group of events, so that no clock is read beside them, and so that a group never has to
 * share the counters with another. stat/count/processor_counters.c chooses the events.
 */
#ifndef EVAL_EVENTS_H
#define EVAL_EVENTS_H

#include <stdbool.h>

/* Finds out which events there are, and prints a row that names them and says what is missing. */
void events_open(void);

/* Events are counted in two groups or more; a round of a workload counts one of them. */
unsigned int events_groups(void);

/*
 * Runs fn(arg) with the events of a group counted. Returns false if others used the counters
 * meanwhile.
 */
bool events_count(unsigned int group, void (*fn)(void *arg), void *arg);

/* Prints `"events": {"NAME": COUNT, ...}` of the last run, less what counting itself takes. */
void events_print(unsigned int group);

#endif /* EVAL_EVENTS_H */
