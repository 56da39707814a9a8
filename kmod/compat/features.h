/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Features of the processor and of the kernel that older headers do not name. This header owns the
 * questions and the locking of one; its users own what follows from the answers.
 */
#ifndef TLK_COMPAT_FEATURES_H
#define TLK_COMPAT_FEATURES_H

#include <linux/init.h>
#include <linux/sched.h>
#include <linux/types.h>
#include <asm/cpufeature.h>
#ifdef CONFIG_X86_USER_SHADOW_STACK
#include <asm/prctl.h>
#endif
#include <asm/unistd.h>

/* Has the thread a shadow stack? A function call at level 0 pushes nothing on it. */
static inline bool tlk_has_shadow_stack(const struct task_struct *task)
{
#ifdef CONFIG_X86_USER_SHADOW_STACK
	return task->thread.features & ARCH_SHSTK_SHSTK;
#else
	return false;
#endif
}

/* Makes this thread's arch_prctl(ARCH_SHSTK_ENABLE) -EPERM, until it executes a program. */
static inline void tlk_lock_shadow_stack(void)
{
#ifdef CONFIG_X86_USER_SHADOW_STACK
	current->thread.features_locked |= ARCH_SHSTK_SHSTK;
#endif
}

/* Does the kernel account call depth from each entry on (against Retbleed)? */
static inline bool tlk_tracks_call_depth(void)
{
#ifdef X86_FEATURE_CALL_DEPTH
	return boot_cpu_has(X86_FEATURE_CALL_DEPTH);
#else
	return false;
#endif
}

/*
 * Numbers of the calls that the kernel's own user probes make, each with a comma behind it; nothing
 * on kernels that have no such call.
 */
#ifdef __NR_uretprobe
#define TLK_NUMBER_OF_URETPROBE __NR_uretprobe,
#else
#define TLK_NUMBER_OF_URETPROBE
#endif
#ifdef __NR_uprobe
#define TLK_NUMBER_OF_UPROBE __NR_uprobe,
#else
#define TLK_NUMBER_OF_UPROBE
#endif

#endif /* TLK_COMPAT_FEATURES_H */
