/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How a process lets itself be found, and followed, by an observer who reads memory: a page that
 * begins with a magic number and its own address, so that no copy is taken for it, and says what
 * the process is about. An observer writes nowhere in memory. Where the process must not go on
 * without it, it waits for a line of its standard input, however slow the machine is.
 *
 * The observers are trapless/experiments/observer.py and eval/peek_overhead/sweep.c.
 */
#ifndef EVAL_ANNOUNCE_H
#define EVAL_ANNOUNCE_H

#include <stdbool.h>
#include <stdint.h>

#define ANNOUNCE_PAGE 4096u
#define ANNOUNCE_OVER UINT64_MAX	/* the last setting: nothing follows */

/* The process writes, observers read. Aligned words: none is ever seen half written. */
struct announcement {
	uint64_t magic;
	uint64_t address;	/* of this page, physical unless the observer is told otherwise */
	uint64_t region;	/* address of what is to be observed */
	volatile uint64_t phase;	/* 1, 2, ...; 0 before the first */
	volatile uint64_t setting;	/* of this phase; what it means is the experiment's */
};

/* Where a page lies in physical memory; ends the program where it cannot be known. */
uint64_t announce_physical(const void *page);

/* From now on the page can be found. */
void announce_begin(struct announcement *page, uint64_t address, uint64_t region);

/* The next phase begins. */
void announce_next(struct announcement *page, uint64_t setting);

/* Wait until the observer says to go on; ends the program where there is none any more. */
void announce_await(void);

/* Whether it has said so, after at most so many ms; each of its words counts once. */
bool announce_may_go_on(int wait_ms);

#endif /* EVAL_ANNOUNCE_H */
