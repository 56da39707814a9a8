// SPDX-License-Identifier: GPL-2.0-only
/*
 * A kernel module that interrupts every CPU by NMIs, some thousand times a second, whatever the CPU
 * does; the handler takes page faults and breakpoints of its own, as real ones do that read user
 * stacks or meet a patched instruction. Those end with IRET, which lets the next NMI in early.
 *
 * It is what the entry code of supervisor mode is tested with: insert it with supervisor mode at
 * work, look at the counts below /sys/module/nmi_storm/parameters, remove it. Outside a VM it
 * refuses to load.
 */
#include <linux/cpufeature.h>
#include <linux/dmi.h>
#include <linux/cpumask.h>
#include <linux/hrtimer.h>
#include <linux/kdebug.h>
#include <linux/module.h>
#include <linux/smp.h>
#include <linux/timekeeping.h>
#include <linux/uaccess.h>
#include <asm/apic.h>
#include <asm/nmi.h>

static unsigned int period_us = 100;
module_param(period_us, uint, 0444);
MODULE_PARM_DESC(period_us, "least time between two NMIs of a CPU, microseconds");

/* Written by any CPU without a lock: lower bounds. */
static unsigned long nmis, in_user_mode, on_user_stack, faults, breakpoints;
module_param(nmis, ulong, 0444);
module_param(in_user_mode, ulong, 0444);	/* interrupted what the kernel calls user mode */
module_param(on_user_stack, ulong, 0444);	/* kernel code with a user's stack pointer */
module_param(faults, ulong, 0444);
module_param(breakpoints, ulong, 0444);

#define PAUSE_COSTS 10	/* between two NMIs a CPU has ten times for itself what one costs */

static DEFINE_PER_CPU(struct hrtimer, timer);
static DEFINE_PER_CPU(u64, cost_ns);	/* of its last NMI; written there, read by its neighbour */
extern const char nmi_storm_breakpoint[];

static int breakpoint(struct notifier_block *block, unsigned long kind, void *data)
{
	struct die_args *args = data;

	/* The instruction pointer is after the breakpoint. */
	if (kind != DIE_INT3 || args->regs->ip != (unsigned long)nmi_storm_breakpoint + 1)
		return NOTIFY_DONE;
	breakpoints++;
	return NOTIFY_STOP;
}

static struct notifier_block breakpoint_block = { .notifier_call = breakpoint };

static int interrupted(unsigned int kind, struct pt_regs *regs)
{
	u64 begin_ns = ktime_get_mono_fast_ns();
	int word;

	nmis++;
	if (user_mode(regs))
		in_user_mode++;
	else if ((long)regs->ip < 0 && (long)regs->sp >= 0)
		on_user_stack++;
	for (int i = 0; i < 2; i++) {
		pagefault_disable();
		if (__get_user(word, (int __user *)8))
			faults++;
		pagefault_enable();
		if (i)
			continue;
		asm volatile(".globl nmi_storm_breakpoint\n"
			     "nmi_storm_breakpoint: .byte 0xcc");
	}
	this_cpu_write(cost_ns, ktime_get_mono_fast_ns() - begin_ns);
	return NMI_HANDLED;
}

/*
 * Each CPU's timer interrupts the next CPU, so the two are at unrelated places. Their periods
 * differ: timers in step would send each NMI while its target is in its own timer's interrupt. A
 * CPU that is alone interrupts itself, which is always here.
 */
static enum hrtimer_restart storm(struct hrtimer *this)
{
	unsigned int next = cpumask_next(smp_processor_id(), cpu_online_mask);
	u64 interval_ns;

	if (next >= nr_cpu_ids)
		next = cpumask_first(cpu_online_mask);
	apic->send_IPI(next, NMI_VECTOR);
	interval_ns = max_t(u64, period_us * 1000ull, PAUSE_COSTS * per_cpu(cost_ns, next));
	interval_ns += interval_ns / 3 * (next % 2);
	hrtimer_forward_now(this, ns_to_ktime(interval_ns));
	return HRTIMER_RESTART;
}

static void timer_start(void *unused)
{
	hrtimer_start(this_cpu_ptr(&timer), ns_to_ktime(period_us * 1000ull),
		      HRTIMER_MODE_REL_PINNED_HARD);
}

static void nothing(void *unused)
{
}

static void timer_prepare(struct hrtimer *one)
{
#ifdef HAS_HRTIMER_SETUP
	hrtimer_setup(one, storm, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
#else
	hrtimer_init(one, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
	one->function = storm;
#endif
}

static int __init nmi_storm_init(void)
{
	int cpu, error;

	if (!boot_cpu_has(X86_FEATURE_HYPERVISOR) &&
	    !dmi_match(DMI_BIOS_VENDOR, "The Bochs Project"))
		return -EPERM;
	if (!period_us)
		return -EINVAL;
	error = register_die_notifier(&breakpoint_block);
	if (error)
		return error;
	error = register_nmi_handler(NMI_LOCAL, interrupted, 0, "nmi_storm");
	if (error)
		goto err_notifier;
	for_each_possible_cpu(cpu)
		timer_prepare(per_cpu_ptr(&timer, cpu));
	on_each_cpu(timer_start, NULL, 1);
	return 0;

err_notifier:
	unregister_die_notifier(&breakpoint_block);
	return error;
}

static void __exit nmi_storm_exit(void)
{
	int cpu;

	for_each_possible_cpu(cpu)
		hrtimer_cancel(per_cpu_ptr(&timer, cpu));
	/* An NMI that was sent has arrived before a CPU that it was sent to answers this. */
	on_each_cpu(nothing, NULL, 1);
	unregister_nmi_handler(NMI_LOCAL, "nmi_storm");
	unregister_die_notifier(&breakpoint_block);
}

module_init(nmi_storm_init);
module_exit(nmi_storm_exit);
MODULE_DESCRIPTION("Interrupts every CPU by NMIs, for tests of entry code");
MODULE_LICENSE("GPL");
