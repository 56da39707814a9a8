/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Declares the owner of a task (owner.c), and the functions of scans.c and work.c for regions.c.
 */
#ifndef TRAPLESS_STAT_PROGRAM_H
#define TRAPLESS_STAT_PROGRAM_H

#include <linux/sched.h>

/* Has the module been given a control group? */
bool program_is_named(void);

/* Whether the task is in the program's control group, or in a group below it. */
bool is_in_program(struct task_struct *task);
bool is_in_call(struct task_struct *task);
bool is_call_of_32_bits(struct task_struct *task);

/* ---- scans.c ---- */

struct pt_regs;

/* Begins with an empty set of names, or ends it. Returns 0 or -ENOMEM. */
int scans_begin(void);
void scans_end(void);
/* Does this call read names, or ask for the attributes of one? */
bool scans_concern(const struct pt_regs *regs);
/*
 * Such a call has returned its result, and no error. Adds to both counts: the names that it read,
 * and whether it asked for the attributes of a name that was read.
 */
void scans_note(const struct pt_regs *regs, long result, u64 *names, u64 *name_stats);

/* ---- work.c ---- */

/* Takes the probe away, if it is set. */
void work_exit(void);

#endif
