/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tells when the current thread goes to sleep anywhere in the kernel, and when it runs again. This
 * header owns the means: the scheduler's notifiers, which kernels with KVM have. It does not own
 * what follows.
 */
#ifndef TLK_COMPAT_SLEEP_H
#define TLK_COMPAT_SLEEP_H

#include <linux/preempt.h>
#include <linux/types.h>

#ifdef CONFIG_PREEMPT_NOTIFIERS
#define TLK_SLEEP_IS_SEEN true
#else
#define TLK_SLEEP_IS_SEEN false
#endif

/*
 * A thread that is watched. `went` is called when it goes to sleep, and not when another thread
 * takes its CPU; `came` when it goes on after that. Both run in the middle of a switch of threads,
 * under the lock of the run queue: they may neither sleep nor wake anybody.
 */
struct tlk_sleep {
	void (*went)(struct tlk_sleep *sleep);
	void (*came)(struct tlk_sleep *sleep);
	bool asleep;
#ifdef CONFIG_PREEMPT_NOTIFIERS
	struct preempt_notifier notifier;
#endif
};

/* Before the first thread is watched. It may sleep, and does nothing from the second time on. */
void tlk_sleep_prepare(void);
/* When no thread is watched any more. */
void tlk_sleep_exit(void);

/* For the current thread, which must not end or return before it is unwatched. */
void tlk_sleep_watch(struct tlk_sleep *sleep);
void tlk_sleep_unwatch(struct tlk_sleep *sleep);

#endif /* TLK_COMPAT_SLEEP_H */
