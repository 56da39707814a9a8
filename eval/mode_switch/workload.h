/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shared by the parts of the workload of mode-switch: its options, and the module. Each part prints
 * its own rows and owns its own checks.
 */
#ifndef MODE_SWITCH_WORKLOAD_H
#define MODE_SWITCH_WORKLOAD_H

#include "measure.h"

struct workload {
	enum measure_kind kind;
	const char *link;	/* how the program is linked: the name of the library's form */
	const char *calls;	/* names, as in loops.h */
	unsigned int repeats;	/* of each run */
	unsigned int events;	/* calls in a row whose transitions are counted */
	unsigned int delays;	/* switches from outside whose delay is counted */
	bool counters;		/* whether the processor's are read beside the clock */
	int module;		/* its descriptor, or -1: no supervisor mode here */
	const char *why;	/* then: what is in the way */
};

/* switched_calls.c: what calls cost in each mode (Fig. 7), and how often they change the mode. */
void calls_count(const struct workload *workload);	/* one mode after the other */
void calls_measure(const struct workload *workload);	/* modes in random order */
void calls_events(const struct workload *workload);

/* switches.c: what a switch costs the process that asks for it (Fig. 8). */
void switches_count(const struct workload *workload);

/* delay.c: after how many calls of its target a switch from outside takes effect. */
void delay_count(const struct workload *workload);

#endif /* MODE_SWITCH_WORKLOAD_H */
