/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * program.h - what the files of trapless_stat.ko ask each other: regions.c knows who belongs to the
 * program, work.c counts its calls with work on their way out.
 */
#ifndef TRAPLESS_STAT_PROGRAM_H
#define TRAPLESS_STAT_PROGRAM_H

#include <linux/sched.h>

/* ---- regions.c ---- */

bool is_in_program(struct task_struct *task);
bool is_in_call(struct task_struct *task);

/* ---- work.c ---- */

/* Takes the probe away, if it is set. */
void work_exit(void);

#endif
