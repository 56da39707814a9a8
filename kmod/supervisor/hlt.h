/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The program that a process executes, as far as supervisor mode changes what its code does. This
 * header owns the question; refusal.c and process.c own what follows from the answer.
 */
#ifndef TLK_HLT_H
#define TLK_HLT_H

#include <linux/sched.h>

/*
 * Does the process's C library end it by hlt, which level 0 executes? Reads the process's memory:
 * may sleep until a page of it has arrived, or until the caller is killed.
 */
bool tlk_program_ends_by_hlt(struct task_struct *task);

#endif /* TLK_HLT_H */
