/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What x86's entry and exit of system calls test. compat/entry.h includes it and owns what all
 * processors share. It decides nothing.
 */
#ifndef TLK_COMPAT_X86_ENTRY_H
#define TLK_COMPAT_X86_ENTRY_H

#include <linux/entry-common.h>
#include <asm/processor.h>

/* Anything that the kernel does on the way into a call. */
#define TLK_ENTRY_WORK SYSCALL_WORK_ENTER
#define TLK_ENTRY_SECCOMP SYSCALL_WORK_SECCOMP

/*
 * The flags that keep a call in supervisor mode from returning at once: all that the kernel tests
 * on the way to user mode.
 */
#ifdef TIF_USER_RETURN_NOTIFY
#define TLK_EXIT_NOTIFIERS _TIF_USER_RETURN_NOTIFY
#else
#define TLK_EXIT_NOTIFIERS 0
#endif
#define TLK_SUPERVISOR_EXIT_WORK \
	(EXIT_TO_USER_MODE_WORK | TLK_EXIT_NOTIFIERS | _TIF_NEED_FPU_LOAD)

/*
 * Flags with which a call goes to the kernel's entry: the thread single-steps, its alignment is
 * checked in user mode, or it is in a state that 64-bit programs do not use.
 */
#define TLK_SUPERVISOR_FLAGS_NOT_OURS \
	(X86_EFLAGS_TF | X86_EFLAGS_IOPL | X86_EFLAGS_NT | X86_EFLAGS_RF | X86_EFLAGS_VM | \
	 X86_EFLAGS_AC | X86_EFLAGS_VIF | X86_EFLAGS_VIP)

static __always_inline unsigned long tlk_entry_work(void)
{
	return READ_ONCE(current_thread_info()->syscall_work) & TLK_ENTRY_WORK;
}

/*
 * Asks for both of the above, in a form that the compiler turns into two tests of memory. Others
 * (signals, the scheduler, tracers) set these bits at any time. A caller that asks before each call
 * finds them at the latest before the next one, because the call in between is a compiler barrier.
 */
static __always_inline bool tlk_work_pending(void)
{
	const struct thread_info *info = current_thread_info();

	return unlikely(data_race(info->flags) & TLK_EXIT_WORK) ||
	       unlikely(data_race(info->syscall_work) & TLK_ENTRY_WORK);
}

/*
 * An entry by int $0x80 marks the call as a 32-bit one. Requests are 64-bit calls, and handlers and
 * seccomp must see them as such. Returns whether tlk_compat_restore() is to follow.
 */
static __always_inline bool tlk_compat_clear(void)
{
	struct thread_info *info = current_thread_info();

	if (likely(!(info->status & TS_COMPAT)))
		return false;
	info->status &= ~TS_COMPAT;
	return true;
}

static inline void tlk_compat_restore(void)
{
	current_thread_info()->status |= TS_COMPAT;
}

/* May this thread enter? Also by a 32-bit call: its requests are 64-bit ones all the same. */
static __always_inline bool tlk_may_enter(void)
{
	return true;
}

/*
 * Is the value of MSR_LSTAR a guest's? KVM may have loaded it, and changes it back on the way to
 * user mode. Until then it must be left alone.
 */
static __always_inline bool tlk_lstar_is_guests(void)
{
#ifdef TIF_USER_RETURN_NOTIFY
	return test_thread_flag(TIF_USER_RETURN_NOTIFY);
#else
	return false;
#endif
}

#endif /* TLK_COMPAT_X86_ENTRY_H */
