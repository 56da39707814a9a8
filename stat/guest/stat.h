/* SPDX-License-Identifier: GPL-2.0-only
 *
 * The parts of trapless-stat-guest, which runs a program in a guest while the model in its emulator
 * counts. main.c owns the command line and the order of things; group.c the control group and the
 * module trapless_stat; calibrate.c what mechanisms cost here; facts.c what the rows are told
 * besides.
 */
#ifndef TRAPLESS_MODEL_GUEST_STAT_H
#define TRAPLESS_MODEL_GUEST_STAT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <trapless.h>

#define STATUS_FAILED 125 /* ours; as env(1) and timeout(1) have it */

/* One line on standard error, and the end. */
void __attribute__((noreturn, format(printf, 1, 2))) stat_fail(const char *format, ...);

/* ---- group.c ---- */

/* A control group of its own, and the module that knows it. */
void group_create(const char *module);
void group_remove(void);
/* The calling process becomes a member, and with it all that it starts. */
void group_enter(void);
/* Opened before, so that a member's way from here to its exec is short. */
int group_open_counting(void);
/* Regions begin, in that phase; or end, by PHASE_NONE. */
#define PHASE_NONE (-1)
#define PHASE_PROGRAM 0
void group_count(int counting, int phase);
/* Count its calls that find work on their way out, while nothing else is counted: begin, and end
 * with the number; where the kernel takes no probe, 0. */
void group_watch(void);
uint64_t group_watched(void);
/* Whether somebody is in it. */
bool group_is_populated(void);
/* SIGKILL to all of it; returns when nobody is left. */
void group_kill(void);
/* All of it to supervisor mode, or back. */
void group_switch(bool supervisor);
/*
 * Records the module's counts since counting began as facts of the phase, in the order of
 * trapless/stat/run_counts.py.
 */
#define GROUP_COUNTS 8
void group_record_counts(int phase);

/* ---- facts.c ---- */

/* Numbers that the rows carry in the labels of empty regions; trapless/stat/guest.py reads them. */
enum fact {
	FACT_COUNTS = 0,	/* plus 16 times the phase: group_record_counts() */
	FACT_STATUS = 0xff0,	/* of the program, as shells have it */
	FACT_LEFT_RUNNING,	/* processes were ended by us */
	FACT_WORKED,		/* calls with work on their way out, of one uncounted run */
	FACT_REFUSALS,		/* why supervisor mode was not calibrated: tl_supervisor.refusals */
	FACT_CALLS = 0xfe0,	/* in supervisor mode: direct, worked, left, kernel */
	FACT_DEMOTIONS = 0xfd0, /* by cause, TL_DEMOTIONS of them */
};

void fact(unsigned int which, uint64_t value);

/* ---- supervisor.c ---- */

/* Bits of why supervisor mode is refused; 0 where it is offered; ~0 where nobody can be asked. */
uint64_t supervisor_refusals(void);
/* A process, 0 for the calling one, over exec and with its children; or back to user mode. */
void supervisor_switch(pid_t process, bool supervisor);
/* What the module counted, of all processes that were ever switched. */
struct supervisor_counts {
	uint64_t calls[4];
	uint64_t demotions[TL_DEMOTIONS];
};
void supervisor_read(struct supervisor_counts *counts);

/* ---- calibrate.c ---- */

/* Regions that say what a call costs by each mechanism; `supervisor` where that is offered. */
void calibrate(int counting, bool supervisor);

/* The name under which this program is executed to end at once, and whether it was. */
#define CALIBRATE_IDLE "trapless-stat-idle"
bool calibrate_is_idle(const char *name);

#endif
