// SPDX-License-Identifier: GPL-2.0-only
/*
 * Counts calls of the program that find work to do on their way out, by a probe, and those whose
 * number no call has, by the tracepoint of each call's entry. Both cost instructions, so they are
 * never set while the program is counted. It owns both and their parameters; owner.c says whose
 * work it is.
 */
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/string.h>
#include <linux/sysfs.h>
#include <linux/tracepoint.h>
#include <asm/unistd.h>

#include "owner.h"

static bool watching;
static unsigned long worked;
module_param(worked, ulong, 0400);
MODULE_PARM_DESC(worked, "calls of the program that found work on their way out, while watched");

static int on_work(struct kprobe *probe, struct pt_regs *regs)
{
	if (is_in_call(current) && !(current->flags & PF_EXITING) && is_in_program(current))
		worked++;
	return 0;
}

static struct kprobe work = { .symbol_name = "task_work_run", .pre_handler = on_work };

static unsigned long numberless;
module_param(numberless, ulong, 0400);
MODULE_PARM_DESC(numberless, "calls of the program whose number no call has, while watched");

/* x32's numbers have a bit above all others. */
static void on_call(void *data, struct pt_regs *regs, long number)
{
	if ((unsigned long)number >= __NR_syscalls && !is_call_of_32_bits(current) &&
	    is_in_program(current))
		numberless++;
}

static struct tracepoint *entry; /* of calls; NULL in a kernel without it */

static void find(struct tracepoint *tracepoint, void *data)
{
	if (!strcmp(tracepoint->name, "sys_enter"))
		entry = tracepoint;
}

static int watch(void)
{
	int error;

	worked = numberless = 0;
	work.addr = NULL;
	work.flags = 0;
	error = register_kprobe(&work);
	if (error)
		return error;
	for_each_kernel_tracepoint(find, NULL);
	if (entry)
		error = tracepoint_probe_register(entry, on_call, NULL);
	if (error)
		unregister_kprobe(&work);
	return error;
}

static void unwatch(void)
{
	if (entry) {
		tracepoint_probe_unregister(entry, on_call, NULL);
		tracepoint_synchronize_unregister();
	}
	unregister_kprobe(&work);
}

static int watching_set(const char *text, const struct kernel_param *parameter)
{
	bool on;
	int error = kstrtobool(text, &on);

	if (error || on == watching)
		return error;
	if (on)
		error = watch();
	else
		unwatch();
	if (!error)
		watching = on;
	return error;
}

static int watching_get(char *text, const struct kernel_param *parameter)
{
	return sysfs_emit(text, "%d\n", watching);
}

static const struct kernel_param_ops watching_ops = { .set = watching_set, .get = watching_get };
module_param_cb(watching, &watching_ops, NULL, 0600);
MODULE_PARM_DESC(watching, "whether `worked` and `numberless` count");

void work_exit(void)
{
	if (watching)
		unwatch();
}
