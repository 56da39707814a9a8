/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Declares the owner of a task (owner.c), and the functions of work.c for regions.c.
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

/* ---- work.c ---- */

/* Takes the probe away, if it is set. */
void work_exit(void);

#endif
