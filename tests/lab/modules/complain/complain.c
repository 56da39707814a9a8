// SPDX-License-Identifier: GPL-2.0-only
/*
 * A kernel module that makes a kernel complain, one way for each value of `kind`.
 *
 * It is what the lab's detection of complaints (trapless/vm/splats.py) is tested with, on real
 * kernels. It does damage on purpose and must never be loaded outside a VM: it refuses where the
 * kernel does not say that it runs on a hypervisor.
 */
#include <linux/cpufeature.h>
#include <linux/delay.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

static char *kind = "";
module_param(kind, charp, 0);
MODULE_PARM_DESC(kind, "how to complain: a name in the table below");

static DEFINE_MUTEX(first);
static DEFINE_MUTEX(second);
static DEFINE_SPINLOCK(spin);

static void warn(void)
{
	WARN(1, "asked to warn\n");
}

static void bug(void)
{
	BUG();
}

static void null_pointer(void)
{
	volatile int *nowhere = (volatile int *)8;

	*nowhere = 1;
}

static void sleep_in_atomic(void)
{
	spin_lock(&spin);
	msleep(1);
	spin_unlock(&spin);
}

static void use_after_free(void)
{
	volatile char *memory = kmalloc(64, GFP_KERNEL);

	if (!memory)
		return;
	kfree((void *)memory);
	memory[8] = 1;
}

static void out_of_bounds(void)
{
	volatile char *memory = kmalloc(60, GFP_KERNEL);
	volatile int end = 60;

	if (!memory)
		return;
	memory[end] = 1;
	kfree((void *)memory);
}

static void lock_inversion(void)
{
	mutex_lock(&first);
	mutex_lock(&second);
	mutex_unlock(&second);
	mutex_unlock(&first);
	mutex_lock(&second);
	mutex_lock(&first);
	mutex_unlock(&first);
	mutex_unlock(&second);
}

static void lock_held(void)
{
	mutex_lock(&first);
}

static void leak(void)
{
	for (int i = 0; i < 10; i++)
		if (!kmalloc(100 + i, GFP_KERNEL))
			return;
}

static void list_corruption(void)
{
	struct list_head entry = LIST_HEAD_INIT(entry), list = LIST_HEAD_INIT(list);

	list_add(&entry, &list);
	list.next = &list;
	list_del(&entry);
}

static void hung_task(void)
{
	schedule_timeout_uninterruptible(8 * HZ);
}

static void soft_lockup(void)
{
	preempt_disable();
	mdelay(12000);
	preempt_enable();
}

static void nothing(void)
{
	pr_info("nothing to complain about: no BUG, no WARNING, no Oops here\n");
}

static const struct {
	const char *name;
	void (*complain)(void);
} kinds[] = {
	{ "warn", warn },
	{ "bug", bug },
	{ "null-pointer", null_pointer },
	{ "sleep-in-atomic", sleep_in_atomic },
	{ "use-after-free", use_after_free },
	{ "out-of-bounds", out_of_bounds },
	{ "lock-inversion", lock_inversion },
	{ "lock-held", lock_held },
	{ "leak", leak },
	{ "list-corruption", list_corruption },
	{ "hung-task", hung_task },
	{ "soft-lockup", soft_lockup },
	{ "nothing", nothing },
};

static int __init complain_init(void)
{
	if (!boot_cpu_has(X86_FEATURE_HYPERVISOR))
		return -EPERM;
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		if (strcmp(kinds[i].name, kind))
			continue;
		kinds[i].complain();
		return 0;
	}
	pr_err("no kind '%s'\n", kind);
	return -EINVAL;
}

static void __exit complain_exit(void)
{
}

module_init(complain_init);
module_exit(complain_exit);
MODULE_DESCRIPTION("Makes a kernel complain, for tests of what notices");
MODULE_LICENSE("GPL");
