// SPDX-License-Identifier: GPL-2.0-only
/*
 * A kernel module that leaves a value of its own in every CPU's MSR_LSTAR, as KVM leaves its
 * guests' there: from a thread's turn on a CPU to the next return to user mode, whichever thread
 * makes it.
 *
 * Insert it, do what others do beside guests, remove it. Outside a VM it does not load, nor on
 * kernels without the notifiers that KVM takes.
 */
#include <linux/cpu.h>
#include <linux/cpufeature.h>
#include <linux/dmi.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/smp.h>
#include <linux/user-return-notifier.h>
#include <asm/msr.h>

#ifdef CONFIG_USER_RETURN_NOTIFIER

#define GUESTS_ENTRY 0xffffffff81000000ul	/* no call is made while it is there */

/* Changed with interrupts off, by the CPU itself. */
struct guest {
	struct user_return_notifier notifier;
	u64 hosts_entry;
	bool loaded;
	struct task_struct *thread;
};

static DEFINE_PER_CPU(struct guest, guests);

static void put_back(struct user_return_notifier *notifier)
{
	struct guest *guest = container_of(notifier, struct guest, notifier);
	unsigned long flags;

	local_irq_save(flags);
	if (guest->loaded) {
		guest->loaded = false;
		user_return_notifier_unregister(notifier);
		native_wrmsr(MSR_LSTAR, (u32)guest->hosts_entry, (u32)(guest->hosts_entry >> 32));
	}
	local_irq_restore(flags);
}

static void put_back_here(void *unused)
{
	put_back(&this_cpu_ptr(&guests)->notifier);
}

static int run(void *argument)
{
	struct guest *guest = argument;
	u32 low, high;

	while (!kthread_should_stop()) {
		local_irq_disable();
		if (!guest->loaded) {
			rdmsr(MSR_LSTAR, low, high);
			guest->hosts_entry = low | (u64)high << 32;
			guest->notifier.on_user_return = put_back;
			user_return_notifier_register(&guest->notifier);
			guest->loaded = true;
			native_wrmsr(MSR_LSTAR, (u32)GUESTS_ENTRY, (u32)(GUESTS_ENTRY >> 32));
		}
		local_irq_enable();
		cond_resched_tasks_rcu_qs();	/* unloading waits for it */
	}
	return 0;
}

static void stop(void)
{
	int cpu;

	for_each_possible_cpu(cpu)
		if (!IS_ERR_OR_NULL(per_cpu(guests, cpu).thread))
			kthread_stop(per_cpu(guests, cpu).thread);
	on_each_cpu(put_back_here, NULL, 1);
}

static int __init guests_init(void)
{
	struct guest *guest;
	int cpu, error = 0;

	if (!boot_cpu_has(X86_FEATURE_HYPERVISOR) &&
	    !dmi_match(DMI_BIOS_VENDOR, "The Bochs Project"))
		return -EPERM;
	cpus_read_lock();
	for_each_online_cpu(cpu) {
		guest = per_cpu_ptr(&guests, cpu);
		guest->thread = kthread_create_on_cpu(run, guest, cpu, "guest/%u");
		error = PTR_ERR_OR_ZERO(guest->thread);
		if (error)
			break;
		wake_up_process(guest->thread);
	}
	cpus_read_unlock();
	if (error)
		stop();
	return error;
}

static void __exit guests_exit(void)
{
	stop();
}

module_init(guests_init);
module_exit(guests_exit);

#else

static int __init no_guests_init(void)
{
	return -EOPNOTSUPP;
}

module_init(no_guests_init);

#endif

MODULE_DESCRIPTION("Keeps another entry in MSR_LSTAR between guests and user mode, for tests");
MODULE_LICENSE("GPL");
