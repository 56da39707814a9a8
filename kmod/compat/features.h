/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Features of the processor and of the kernel that older headers do not name. This header owns the
 * questions; refusal.c and call.c own what follows from the answers.
 */
#ifndef TLK_COMPAT_FEATURES_H
#define TLK_COMPAT_FEATURES_H

#include <linux/init.h>
#include <linux/types.h>
#include <asm/cpufeature.h>
#include <asm/unistd.h>

/* May programs use shadow stacks? */
static inline bool tlk_has_user_shadow_stacks(void)
{
#ifdef X86_FEATURE_USER_SHSTK
	return boot_cpu_has(X86_FEATURE_USER_SHSTK);
#else
	return false;
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
