/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Declares the work before a return to user mode from supervisor mode. leave.c owns it.
 */
#ifndef TLK_COMPAT_X86_LEAVE_H
#define TLK_COMPAT_X86_LEAVE_H

#include <linux/types.h>
#include <asm/ptrace.h>

/*
 * Finds the kernel's function that does the work before a return to user mode from a system call.
 * Returns NULL if there is none. tlk_leave() calls it with interrupts on; it returns with
 * interrupts off. Code that jumps to the address itself asks tlk_leave_wants_interrupts_off()
 * first, and gives 0 as second argument.
 */
void *tlk_leave_init(void);
void tlk_leave(struct pt_regs *regs);
bool tlk_leave_wants_interrupts_off(void);

#endif /* TLK_COMPAT_X86_LEAVE_H */
