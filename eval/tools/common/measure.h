/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The tools by which every workload measures: a counter, its own cost, a seeded order, rows of
 * JSON, and a loud end when a check fails. It owns no mechanism and no experiment.
 *
 * Two kinds of figures come from one counter (processor.h). Under `-icount shift=0` the emulator
 * advances it by instructions: differences are counts ("counted"). Without, it is a clock of the
 * host: only ratios of alternating runs mean anything ("measured").
 */
#ifndef EVAL_MEASURE_H
#define EVAL_MEASURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "processor.h"

#define MEASURE_LIST_MAX 32	/* elements of a list option */

enum measure_kind { MEASURE_COUNTED, MEASURE_MEASURED };

/* Ends the program with status 1: one row for the raw data, one line for people. */
void measure_fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* Lets the program fail after that many seconds. */
void measure_limit(unsigned int seconds);

/* The cost of two readings of the counter with nothing between, and proof of what it counts. */
uint64_t measure_calibrate(enum measure_kind kind);

/*
 * Runs fn(arg) once between two readings; *value is the difference less the counter's own cost.
 * False when a timer tick fell into it (counted runs repeat those).
 */
bool measure_once(enum measure_kind kind, void (*fn)(void *arg), void *arg, uint64_t *value);

/* Returns just after a timer tick: what follows has the whole interval to itself. */
void measure_await_tick(void);

/* Seeded order. */
void measure_seed(uint64_t seed);
uint64_t measure_random(void);
void measure_shuffle(unsigned int *items, unsigned int count);

/* "1,2,32" and "a,b,c"; both end the program on nonsense. Return the number of elements. */
unsigned int measure_parse_numbers(const char *text, unsigned int *out, unsigned int limit);
bool measure_list_has(const char *list, const char *name);

#define MEASURE_REASON_CHARS 128
#define MEASURE_NOT_ASKED 1

/*
 * Whether a mechanism is open, by what opening it gave: 0, -errno, or MEASURE_NOT_ASKED where
 * nobody asked for it. Where it is not, `reason` says why.
 */
bool measure_opened(char reason[MEASURE_REASON_CHARS], int error);

const char *measure_unit(enum measure_kind kind);
enum measure_kind measure_parse_kind(const char *text);
uint64_t measure_parse_number(const char *option, const char *text, uint64_t limit);

/* Pins the calling thread; a machine with fewer CPUs is a failure. */
void measure_pin(unsigned int cpu);

/* One row {"progress": done, "total": total}; also flushes what was printed. */
void measure_progress(unsigned int done, unsigned int total);

#endif /* EVAL_MEASURE_H */
