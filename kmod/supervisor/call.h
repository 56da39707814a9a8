/* SPDX-License-Identifier: GPL-2.0-only */
/* Where calls in supervisor mode come from the assembly, and go to from there. */
#ifndef TLK_SUPERVISOR_CALL_H
#define TLK_SUPERVISOR_CALL_H

#include <asm/ptrace.h>
#include <asm/syscall.h>

/* 0, or -ENOENT where the kernel lacks a function that is needed. */
int tlk_supervisor_calls_init(const sys_call_ptr_t *table, unsigned long *kernel_entry);

/* Is the current thread in a call that it made in supervisor mode, or at the end of one? */
bool tlk_supervisor_call_is_open(void);

/* supervisor/entry.S calls it with interrupts off; returns TLK_LEAVE_*. */
unsigned int tlk_supervisor_exit_work(struct pt_regs *regs);

#endif /* TLK_SUPERVISOR_CALL_H */
