// SPDX-License-Identifier: GPL-2.0-only
/*
 * Counts calls of the program that find work to do on their way out, by a probe. The probe costs
 * instructions, so it is never set while the program is counted. It owns the probe and its
 * parameters; whose work it is, program.c says.
 */
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/sysfs.h>

#include "program.h"

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

static int watching_set(const char *text, const struct kernel_param *parameter)
{
	bool on;
	int error = kstrtobool(text, &on);

	if (error || on == watching)
		return error;
	if (on) {
		worked = 0;
		work.addr = NULL;
		work.flags = 0;
		error = register_kprobe(&work);
	} else {
		unregister_kprobe(&work);
	}
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
MODULE_PARM_DESC(watching, "whether calls with work on their way out are counted");

void work_exit(void)
{
	if (watching)
		unregister_kprobe(&work);
}
