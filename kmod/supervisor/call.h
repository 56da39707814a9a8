/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The calls that threads in supervisor mode make. This header owns the set-up of their table and
 * the exit work that entry.S asks for.
 */
#ifndef TLK_SUPERVISOR_CALL_H
#define TLK_SUPERVISOR_CALL_H

#include <asm/ptrace.h>
#include <asm/syscall.h>

/* Returns 0, or -ENOENT where the kernel lacks a function that is needed. */
int tlk_supervisor_calls_init(const sys_call_ptr_t *table, unsigned long *kernel_entry);

/* entry.S calls it with interrupts off. Returns TLK_LEAVE_*. */
unsigned int tlk_supervisor_exit_work(struct pt_regs *regs);

#endif /* TLK_SUPERVISOR_CALL_H */
