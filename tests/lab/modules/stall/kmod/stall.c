// SPDX-License-Identifier: GPL-2.0-only
/*
 * A kernel module that keeps interrupts off on one CPU for a known time, again and again, in a
 * function that is called what it does. It measures how long each time really was.
 *
 * It is what looking from outside is tested with: what is recorded of interrupts that are off must
 * be this function's, and as much as it says below /sys/module/stall/parameters. Outside a VM it
 * refuses to load.
 */
#include <linux/cpufeature.h>
#include <linux/delay.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/spinlock.h>
#include <linux/timekeeping.h>

#define LENGTH_US_MAX 10000	/* no watchdog bites, and the clock's source stays trusted */

static unsigned int cpu;
module_param(cpu, uint, 0444);
static unsigned int length_us = 1000;
module_param(length_us, uint, 0444);
MODULE_PARM_DESC(length_us, "how long interrupts are off, microseconds");
static unsigned int pause_us = 4000;
module_param(pause_us, uint, 0444);
MODULE_PARM_DESC(pause_us, "how long they are not, at least, microseconds");

/* Written by the one thread; a reader may see one stall counted and not yet summed up. */
static unsigned long stalls, stalled_ns;
module_param(stalls, ulong, 0444);
module_param(stalled_ns, ulong, 0444);

static DEFINE_SPINLOCK(lock);
static struct task_struct *thread;

static noinline void stall_with_interrupts_off(void)
{
	unsigned long flags;
	u64 begin_ns, now_ns;

	spin_lock_irqsave(&lock, flags);
	begin_ns = ktime_get_ns();
	do {
		cpu_relax();
		now_ns = ktime_get_ns();
	} while (now_ns - begin_ns < length_us * 1000ull);
	stalled_ns += now_ns - begin_ns;
	stalls++;
	spin_unlock_irqrestore(&lock, flags);
}

static int stall_again_and_again(void *unused)
{
	while (!kthread_should_stop()) {
		stall_with_interrupts_off();
		usleep_range(pause_us, pause_us + 100);
	}
	return 0;
}

static int __init stall_init(void)
{
	if (!boot_cpu_has(X86_FEATURE_HYPERVISOR))
		return -EPERM;
	if (!length_us || length_us > LENGTH_US_MAX || !pause_us || !cpu_online(cpu))
		return -EINVAL;
	thread = kthread_create(stall_again_and_again, NULL, "stall");
	if (IS_ERR(thread))
		return PTR_ERR(thread);
	kthread_bind(thread, cpu);
	wake_up_process(thread);
	return 0;
}

static void __exit stall_exit(void)
{
	kthread_stop(thread);
}

module_init(stall_init);
module_exit(stall_exit);
MODULE_DESCRIPTION("Keeps interrupts off for known times, for tests of looking from outside");
MODULE_LICENSE("GPL");
