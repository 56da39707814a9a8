// SPDX-License-Identifier: GPL-2.0-only
/*
 * Answers for probes where the kernel was built without the places that they go to (jump labels,
 * inline static calls, tracepoints). This file owns the answer that they are not there, and nothing
 * else.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/errno.h>
#include <linux/init.h>
#include <linux/kernel.h>
#include <linux/moduleparam.h>
#include <linux/printk.h>
#include <linux/sysfs.h>

#include "probe/probe.h"

static int set_probes(const char *text, const struct kernel_param *parameter)
{
	unsigned int what;
	int error;

	error = kstrtouint(text, 0, &what);
	if (error || !what)
		return error;
	pr_err("no probes in this kernel: it needs jump labels, inline static calls and "
	       "tracepoints\n");
	return -EOPNOTSUPP;
}

static int get_probes(char *text, const struct kernel_param *parameter)
{
	return sysfs_emit(text, "0\n");
}

static const struct kernel_param_ops probes_ops = {
	.set = set_probes,
	.get = get_probes,
};
module_param_cb(probes, &probes_ops, NULL, 0600);
MODULE_PARM_DESC(probes, "show observers what CPUs do (not on this kernel)");

int __init tlk_probe_init(bool supervisor_is_offered)
{
	return 0;
}

void tlk_probe_exit(void)
{
}

bool tlk_probe_abandon(void)
{
	return true;
}
