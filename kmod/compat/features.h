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
#ifdef CONFIG_X86
#include <asm/pkru.h>
#endif
#ifdef CONFIG_X86_USER_SHADOW_STACK
#include <asm/prctl.h>
#endif
#include <asm/unistd.h>

/*
 * Does the kernel make indirect calls by retpolines? AMD's way to do without them, LFENCE before an
 * indirect call, is left as it is.
 */
static inline bool tlk_has_slow_pointers(void)
{
#ifdef CONFIG_X86
	return boot_cpu_has(X86_FEATURE_RETPOLINE) && !boot_cpu_has(X86_FEATURE_RETPOLINE_LFENCE);
#else
	return false;
#endif
}

/* What the thread may do with user memory by the keys of its pages. */
#ifdef CONFIG_X86
typedef u32 tlk_keys;

static inline tlk_keys tlk_protection_keys(void)
{
	return read_pkru();
}
#else
typedef u64 tlk_keys;

static inline tlk_keys tlk_protection_keys(void)
{
#ifdef CONFIG_ARM64_POE
	return system_supports_poe() ? read_sysreg_s(SYS_POR_EL0) : 0;
#else
	return 0;
#endif
}
#endif

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
