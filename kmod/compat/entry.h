/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Gives access to what the kernel's system-call entry and exit test, and to the register frame
 * between them. This header owns the names that differ between kernels and everything that knows
 * struct thread_info. It decides nothing.
 */
#ifndef TLK_COMPAT_ENTRY_H
#define TLK_COMPAT_ENTRY_H

#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/sched/task_stack.h>
#include <linux/thread_info.h>

#include "compat/frame.h"

#ifndef _TIF_NEED_RESCHED_LAZY
#define _TIF_NEED_RESCHED_LAZY 0
#endif

/*
 * Work that the kernel does on the way out to user mode and that has to be done between two calls
 * as well. The rest of EXIT_TO_USER_MODE_WORK (uprobes, live patching, rseq) is about user mode and
 * waits for it.
 */
#define TLK_EXIT_RESCHED (_TIF_NEED_RESCHED | _TIF_NEED_RESCHED_LAZY)
#define TLK_EXIT_RESUME _TIF_NOTIFY_RESUME
#define TLK_EXIT_WORK (TLK_EXIT_RESCHED | TLK_EXIT_RESUME | _TIF_SIGPENDING | _TIF_NOTIFY_SIGNAL)

static __always_inline unsigned long tlk_exit_work(void)
{
	return READ_ONCE(current_thread_info()->flags) & TLK_EXIT_WORK;
}

#ifdef __aarch64__
#include "compat/arm64/entry.h"
#else
#include "compat/x86/entry.h"
#endif

/*
 * TLK_EXIT_RESUME announces task work, but also rseq's and the memory cgroup's, which wait for user
 * mode. If it stayed set, every later call would take the slow path. It is cleared before task work
 * is looked for, as the kernel does, and set again at the end.
 */
static inline void tlk_resume_clear(void)
{
	clear_thread_flag(TIF_NOTIFY_RESUME);
	/* Pairs with the barrier in task_work_add() between queuing work and setting the flag. */
	smp_mb__after_atomic();
}

/*
 * Must the current thread wait at its return to user mode, because it has used too much of its
 * control group's memory (memory.high) or of a disk's time?
 */
static inline bool tlk_is_throttled(void)
{
	bool throttled = false;

#ifdef CONFIG_MEMCG
	throttled |= current->memcg_nr_pages_over_high != 0;
#endif
#if defined(CONFIG_BLK_CGROUP) && defined(TLK_HAS_THROTTLE_DISK)
	throttled |= current->throttle_disk != NULL;
#elif defined(CONFIG_BLK_CGROUP)
	throttled |= current->throttle_queue != NULL;
#endif
	return throttled;
}

static inline void tlk_resume_restore(void)
{
	set_thread_flag(TIF_NOTIFY_RESUME);
}

/*
 * For a variable whose fields are all set before they are read: without it, compilers that clear
 * every variable (CONFIG_INIT_STACK_ALL_ZERO) do so at each entry.
 */
#define tlk_uninitialized __attribute__((uninitialized))

/* VM_IO, because madvise(MADV_DOFORK) undoes VM_DONTCOPY except there. */
static inline void tlk_vma_forbid_copy(struct vm_area_struct *vma)
{
	const vm_flags_t flags = VM_DONTCOPY | VM_DONTEXPAND | VM_IO;

#ifdef TLK_HAS_VM_FLAGS_SET
	vm_flags_set(vma, flags);
#else
	vma->vm_flags |= flags;
#endif
}

#endif /* TLK_COMPAT_ENTRY_H */
