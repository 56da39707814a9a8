/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What arm64's entry and exit of system calls test. compat/entry.h includes it and owns what all
 * processors share. It decides nothing.
 */
#ifndef TLK_COMPAT_ARM64_ENTRY_H
#define TLK_COMPAT_ARM64_ENTRY_H

#include <linux/compat.h>

/* What x86 calls the flag of a 32-bit program. */
#define TIF_ADDR32 TIF_32BIT

/* Anything that the kernel does on the way into a call. */
#define TLK_ENTRY_WORK _TIF_SYSCALL_WORK
#define TLK_ENTRY_SECCOMP _TIF_SECCOMP

static __always_inline unsigned long tlk_entry_work(void)
{
	return READ_ONCE(current_thread_info()->flags) & TLK_ENTRY_WORK;
}

/* Asks for both at once: they are bits of one word, which others set at any time. */
static __always_inline bool tlk_work_pending(void)
{
	return unlikely(data_race(current_thread_info()->flags) & (TLK_EXIT_WORK | TLK_ENTRY_WORK));
}

/* 32-bit programs have a table of calls of their own, and do not enter. */
static __always_inline bool tlk_may_enter(void)
{
	return !is_compat_task();
}

static __always_inline bool tlk_compat_clear(void)
{
	return false;
}

static inline void tlk_compat_restore(void)
{
}

#endif /* TLK_COMPAT_ARM64_ENTRY_H */
