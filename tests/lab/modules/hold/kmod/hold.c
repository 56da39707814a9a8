// SPDX-License-Identifier: GPL-2.0-only
/*
 * A kernel module that holds every task of one name at functions of the kernel until it is told to
 * let it go, so that what comes amid a call, in a moment of a few instructions, comes there each
 * time.
 *
 * Insert it, wait until `held` below /sys/module/hold/parameters says that a task is held, do what
 * is to come in that moment, write the same number to `released`; remove it. Outside a VM it does
 * not load.
 */
#include <linux/cpufeature.h>
#include <linux/dmi.h>
#include <linux/delay.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/string.h>

#define FUNCTIONS_MAX 4
#define MS_MAX 10000		/* no watchdog bites */

static char *functions[FUNCTIONS_MAX];
static unsigned int count;
module_param_array(functions, charp, &count, 0444);
static char *comm = "";
module_param(comm, charp, 0444);
MODULE_PARM_DESC(comm, "the name of the tasks that are held");

/* How many times a task was held, or is; written by one task at a time. */
static unsigned long held;
module_param(held, ulong, 0444);
static unsigned long released;
module_param(released, ulong, 0644);
MODULE_PARM_DESC(released, "how many times it may go on");

static int hold(struct kprobe *probe, struct pt_regs *regs)
{
	unsigned long number;
	int ms;

	if (strncmp(current->comm, comm, sizeof(current->comm)))
		return 0;
	number = held + 1;
	WRITE_ONCE(held, number);
	for (ms = 0; ms < MS_MAX && READ_ONCE(released) < number; ms++)
		mdelay(1);
	return 0;
}

static struct kprobe probes[FUNCTIONS_MAX];

static void unregister(unsigned int end)
{
	while (end--)
		unregister_kprobe(&probes[end]);
}

static int __init hold_init(void)
{
	unsigned int i;
	int error;

	if (!boot_cpu_has(X86_FEATURE_HYPERVISOR) &&
	    !dmi_match(DMI_BIOS_VENDOR, "The Bochs Project"))
		return -EPERM;
	if (!count)
		return -EINVAL;
	for (i = 0; i < count; i++) {
		probes[i].symbol_name = functions[i];
		probes[i].pre_handler = hold;
		error = register_kprobe(&probes[i]);
		if (error) {
			unregister(i);
			return error;
		}
	}
	return 0;
}

static void __exit hold_exit(void)
{
	unregister(count);
}

module_init(hold_init);
module_exit(hold_exit);
MODULE_DESCRIPTION("Holds tasks at functions of the kernel, for tests of races");
MODULE_LICENSE("GPL");
