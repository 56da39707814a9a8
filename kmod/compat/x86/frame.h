/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The register frame on x86-64: where a call's number and arguments stand, the mark of a thread
 * that makes requests, and what a filter's verdict leaves. It decides nothing.
 */
#ifndef TLK_COMPAT_X86_FRAME_H
#define TLK_COMPAT_X86_FRAME_H

#include <linux/build_bug.h>
#include <linux/errno.h>
#include <linux/ptrace.h>
#include <linux/sched.h>
#include <linux/thread_info.h>
#include <asm/ptrace.h>
#include <asm/syscall.h>

/* Members of struct pt_regs: the number, whose bits above 31 may hold marks, and the arguments. */
#define TLK_NR orig_ax
#define TLK_ARG0 di
#define TLK_ARG1 si
#define TLK_ARG2 dx
#define TLK_ARG3 r10
#define TLK_ARG4 r8
#define TLK_ARG5 r9

/* Kernel and tracers find the call by the same members. */
static __always_inline void tlk_frame_settle(struct pt_regs *regs)
{
}

/*
 * This mark is in the upper half of regs->flags while a thread makes requests: a request that
 * enters the module again finds it there. The processor has no flags in that half. Every entry, the
 * kernel's and the module's own in supervisor mode, stores the flags that the processor had, so
 * user space cannot forge the mark; ptrace and sigreturn change no bit of it. Each thread has one;
 * it lives as long as the system call, is never allocated, and nothing else reads it. While a
 * filter decides, the mark is the distance from the context up to the frame.
 */
static __always_inline u32 *tlk_mark_of(struct pt_regs *regs)
{
	static_assert(sizeof(regs->flags) == 2 * sizeof(u32));
	return (u32 *)&regs->flags + 1;
}

/*
 * This bit is above those that hold the number (syscall_get_nr() reads an int). A filter that
 * answers TRAP rolls the call back by copying orig_ax to ax: with this bit set, ax equals no
 * result.
 */
#define TLK_ROLLED_BACK BIT_ULL(62)

/* Before a filter is asked about the call in the frame. */
static inline void tlk_verdict_begin(struct pt_regs *regs)
{
	regs->orig_ax |= TLK_ROLLED_BACK;
	regs->ax = -ENOSYS;
}

/* After that: the result that the filter has given, if it has not allowed the call. */
static inline long tlk_verdict_end(struct pt_regs *regs, bool allowed)
{
	const long result = regs->ax == regs->orig_ax ? -ENOSYS : regs->ax;

	regs->orig_ax = (u32)regs->orig_ax;
	regs->ax = -ENOSYS;
	return result;
}

/*
 * The clamp is a conditional move and not a branch, as in the kernel's own masking of user
 * addresses: speculation cannot run ahead with a number out of range.
 */
static __always_inline unsigned long tlk_clamp(unsigned long nr, unsigned long most)
{
	asm("cmp %1, %0\n\tcmova %1, %0" : "+r" (nr) : "r" (most) : "cc");
	return nr;
}

#endif /* TLK_COMPAT_X86_FRAME_H */
