/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The parts of trapless-stat-guest, which runs a program in a guest while the model in the emulator
 * counts. main.c owns the command line and the order of steps, group.c the control group and the
 * module trapless_stat, calibrate.c the loops that tell what mechanisms cost on this kernel,
 * guest_supervisor.c supervisor mode, and facts.c the facts in the model's rows.
 */
#ifndef TRAPLESS_STAT_GUEST_H
#define TRAPLESS_STAT_GUEST_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <trapless.h>

#include "stat_labels.h"

/* Prints one line on standard error and ends the program with status STAT_NOT_COUNTED. */
void __attribute__((noreturn, format(printf, 1, 2))) stat_fail(const char *format, ...);

/* ---- group.c ---- */

/* Makes a control group for the program and loads the module, which is given its ID. */
void group_create(const char *module);
void group_remove(void);
/* Makes the calling process a member, and with it all processes that it starts. */
void group_enter(void);
/* Opens the file of group_count() early, so that a member's way from there to its exec is short. */
int group_open_counting(void);
/* Begins regions in that phase, or ends them with PHASE_NONE. */
#define PHASE_NONE (-1)
#define PHASE_PROGRAM 0
void group_count(int counting, int phase);
/*
 * Begins to count the program's calls that find work on their way out, and those with the number of
 * no call. Nothing else may be counted meanwhile. The second function ends this. Both numbers are 0
 * where the kernel takes no probe.
 */
struct watched {
	uint64_t worked, numberless;
};
void group_watch(void);
struct watched group_watched(void);
/* Begins to tell the program's calls apart, or ends it. */
void group_trace(bool on);
/* Whether the group has a member. */
bool group_is_populated(void);
/* Sends SIGKILL to all members and returns when there is none left. */
void group_kill(void);
/* Switches all members to supervisor mode, or back, but those that are about to exit. */
void group_switch(bool supervisor);
/* Records the module's counts of STAT_EVENTS since counting began as facts of the phase. */
void group_record_counts(int phase);

/* ---- facts.c ---- */

/* Records one number in the rows: STAT_FACT_* of stat_labels.h says which one it is. */
void fact(unsigned int which, uint64_t value);

/* ---- guest_supervisor.c ---- */

/* The bits of why supervisor mode is refused: 0 where it is offered, ~0 where no module answers. */
uint64_t supervisor_refusals(void);
/*
 * Switches a process (0: the calling one) to supervisor mode, with its children and over exec; or
 * back to user mode.
 */
void supervisor_switch(pid_t process, bool supervisor);
/* The same; false where the process has gone, or is about to exit. */
bool supervisor_try(pid_t process, bool supervisor);
/* Reads what the module counted in all processes that were ever switched. */
struct supervisor_counts {
#define COUNT(way) uint64_t way;
	STAT_CALLS(COUNT)
#undef COUNT
	uint64_t demotions[TL_DEMOTIONS];
};
void supervisor_read(struct supervisor_counts *counts);

/* ---- calibrate.c ---- */

/*
 * Counts loops that tell what a call costs by each mechanism; `supervisor`: also in that mode;
 * `traced`: also what it costs to tell calls apart.
 */
void calibrate(int counting, bool supervisor, bool traced);

/* The name under which this program is executed to end at once, and whether it has that name. */
#define CALIBRATE_IDLE "trapless-stat-idle"
bool calibrate_is_idle(const char *name);

#endif
