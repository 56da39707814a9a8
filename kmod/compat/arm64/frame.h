/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The register frame on arm64: where a call's number and arguments stand, the mark of a thread that
 * makes requests, and what a filter's verdict leaves. It decides nothing.
 */
#ifndef TLK_COMPAT_ARM64_FRAME_H
#define TLK_COMPAT_ARM64_FRAME_H

#include <linux/errno.h>
#include <linux/ptrace.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/thread_info.h>
#include <asm/ptrace.h>
#include <asm/syscall.h>

typedef syscall_fn_t sys_call_ptr_t;

/* Members of struct pt_regs: the number, whose bits above 31 may hold marks, and the arguments. */
#define TLK_NR regs[8]
#define TLK_ARG0 regs[0]
#define TLK_ARG1 regs[1]
#define TLK_ARG2 regs[2]
#define TLK_ARG3 regs[3]
#define TLK_ARG4 regs[4]
#define TLK_ARG5 regs[5]

/*
 * Kernel and tracers find the number and the first argument by members of their own, since a
 * result takes the place of the argument. A restart of the entering call takes both from there.
 */
static __always_inline void tlk_frame_settle(struct pt_regs *regs)
{
	regs->syscallno = (s32)regs->regs[8];
	regs->orig_x0 = regs->regs[0];
}

/*
 * This mark is in the frame's member for the page tables that a firmware event has interrupted,
 * while a thread makes requests: a request that enters the module again finds it there. No entry
 * from user mode stores anything in it, and neither user space nor a tracer can. A new stack is
 * zero, and the end of each context makes it so again. Each thread has one; it lives as long as the
 * system call, is never allocated, and nothing else reads it. While a filter decides, the mark is
 * the distance from the context up to the frame.
 */
static __always_inline u32 *tlk_mark_of(struct pt_regs *regs)
{
	return (u32 *)&regs->sdei_ttbr1;
}

/* Before a filter is asked about the call in the frame. */
static inline void tlk_verdict_begin(struct pt_regs *regs)
{
	tlk_frame_settle(regs);
}

/*
 * After that: the result that the filter has given, if it has not allowed the call. A filter that
 * answers TRAP rolls the call back, so that the first argument stands where a result would, and
 * makes SIGSYS pending. A filter may also give an error that equals the argument: while another
 * SIGSYS is pending, that is taken for a roll-back.
 */
static inline long tlk_verdict_end(struct pt_regs *regs, bool allowed)
{
	const long result = regs->regs[0];
	const bool rolled_back = regs->regs[0] == regs->orig_x0 &&
				 sigismember(&current->pending.signal, SIGSYS);

	/* A tracer may have changed the number where the kernel reads it. */
	regs->regs[8] = (u32)regs->syscallno;
	if (!allowed)
		regs->regs[0] = regs->orig_x0;
	return rolled_back ? -ENOSYS : result;
}

/* As array_index_nospec(): a conditional move, and a barrier against its prediction. */
static __always_inline unsigned long tlk_clamp(unsigned long nr, unsigned long most)
{
	asm("cmp %0, %1\n\tcsel %0, %0, %1, ls\n\thint #20" : "+r" (nr) : "r" (most) : "cc");
	return nr;
}

#endif /* TLK_COMPAT_ARM64_FRAME_H */
