/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Assertions that cost nothing where the kernel was built without lockdep, for paths whose
 * instructions are counted. This header owns what lockdep's own assertions cannot say.
 */
#ifndef TLK_COMPAT_ASSERT_H
#define TLK_COMPAT_ASSERT_H

#include <linux/bug.h>
#include <linux/irqflags.h>
#include <linux/lockdep.h>
#include <linux/module.h>

#ifdef CONFIG_PROVE_LOCKING
#define TLK_ASSERT(condition) WARN_ON_ONCE(!(condition))
#else
#define TLK_ASSERT(condition) ((void)0)
#endif

/*
 * The processor's interrupts are off where lockdep does not know of it: in assembly that changes
 * the flag, and after the kernel's exit work, which tells lockdep that they are on.
 */
#define TLK_ASSERT_HARDWARE_IRQS_OFF() TLK_ASSERT(raw_irqs_disabled())

/* The lock of the module's parameters, which kernels without sysfs do not have, is held. */
static inline void tlk_assert_params_locked(void)
{
#ifdef CONFIG_SYSFS
	lockdep_assert_held(&THIS_MODULE->param_lock);
#endif
}

#endif /* TLK_COMPAT_ASSERT_H */
