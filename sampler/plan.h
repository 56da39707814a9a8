/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Declares a plan: what is sampled, when, and by which rule. It owns the form of the text that
 * trapless/peek/sampling/sampling_plan.py writes, which has resolved every address. A plan is lines
 * of words:
 *
 *   trapless-plan 1
 *   interval-ns N                      time from one sample to the next
 *   duration-ns N                      0: until a signal
 *   cpu N                              to run on; without it, any
 *   spin-ns N                          poll the clock for at most so long before each deadline
 *   watch PID                          end when this process does
 *   thread TID                         each row has its run time; a line for each thread
 *   base VIRTUAL LENGTH PHYSICAL       a range of virtual addresses that pointers may hold
 *   group NAME once|stable             the fields below are read once, or again until equal
 *   group NAME seqlock SEQ1 SEQ0       ... or until the writer's two counters (4 bytes) agree
 *   field NAME BYTES ADDRESS           physical address
 *   field NAME BYTES ADDRESS OFFSET... the 8 bytes there are a pointer; so is what is at all
 *                                      offsets but the last; the field is at the last
 *
 * A word that begins with # ends a line.
 */
#ifndef SAMPLER_PLAN_H
#define SAMPLER_PLAN_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "limits.h"

enum rule {
	RULE_ONCE,
	RULE_STABLE,
	RULE_SEQLOCK,
};

struct base {
	uint64_t virtual;
	uint64_t length;
	uint64_t physical;
};

struct field {
	char name[NAME_BYTES_MAX];
	uint32_t bytes;
	uint32_t at;		/* offset in a row's data */
	uint64_t address;
	uint32_t steps;		/* 0: the field is at `address` itself */
	uint64_t step[STEPS_MAX];
};

struct group {
	char name[NAME_BYTES_MAX];
	enum rule rule;
	uint64_t seq0;		/* the writer adds 1 to it before ... */
	uint64_t seq1;		/* ... and to this one after it writes */
	uint32_t first;		/* fields [first, end) */
	uint32_t end;
	uint32_t at;		/* bytes [at, at + bytes) of a row's data */
	uint32_t bytes;
};

struct plan {
	uint64_t interval_ns;
	uint64_t duration_ns;
	uint64_t spin_ns;
	int cpu;		/* -1: any */
	pid_t watch;		/* 0: none */
	uint32_t threads;
	uint32_t bases;
	uint32_t groups;
	uint32_t fields;
	uint32_t data_bytes;	/* of all fields */
	pid_t thread[THREADS_MAX];
	struct base base[BASES_MAX];
	struct group group[GROUPS_MAX];
	struct field field[FIELDS_MAX];
};

#define PLAN_ERROR_BYTES 256

/* Fills `plan` from text; 0, or -EINVAL with `error` saying which line is wrong, and how. */
int plan_parse(struct plan *plan, const char *text, size_t length, char *error);

#endif
