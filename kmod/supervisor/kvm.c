// SPDX-License-Identifier: GPL-2.0-only
/*
 * Living with KVM. When KVM is switched on it reads each processor's MSR_LSTAR and puts that value
 * back whenever a guest has used the processor. If a thread in supervisor mode was on the processor
 * at that moment, the value is our entry: harmless while the module is there, for the entry hands
 * calls that are not ours to the kernel, and the end of the machine when it is not. So the module
 * is not unloaded any more once it has met KVM.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <linux/notifier.h>
#include <linux/printk.h>
#include <linux/string.h>

#include "compat/symbols.h"
#include "supervisor/kvm.h"

static void stay(void)
{
	static bool stays;

	if (stays)
		return;
	stays = true;
	__module_get(THIS_MODULE);
	pr_notice("KVM is loaded: this module stays until the machine restarts\n");
}

static int on_module(struct notifier_block *block, unsigned long state, void *data)
{
	const struct module *module = data;

	if (state == MODULE_STATE_COMING && !strcmp(module->name, "kvm"))
		stay();
	return NOTIFY_OK;
}

static struct notifier_block notifier = { .notifier_call = on_module };

int __init tlk_supervisor_kvm_init(void)
{
	int error = register_module_notifier(&notifier);

	if (!error && tlk_symbol("kvm_set_user_return_msr"))
		stay();
	return error;
}

void tlk_supervisor_kvm_exit(void)
{
	unregister_module_notifier(&notifier);
}
