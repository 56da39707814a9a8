// SPDX-License-Identifier: GPL-2.0-only
/*
 * Keeps the module loaded once KVM is. When KVM is switched on it reads each processor's MSR_LSTAR,
 * and it writes that value back whenever a guest has used the processor. If a thread in supervisor
 * mode was on the processor at that moment, the value is the module's entry. That is harmless while
 * the module is loaded, because the entry hands other threads' calls to the kernel; without the
 * module the machine crashes.
 *
 * A module that is loaded by a thread in supervisor mode would also take the module's interrupt
 * table for the kernel's, as kvm_intel does for the exits of its guests. So a thread leaves
 * supervisor mode before it loads a module.
 *
 * This file owns the module's reference; cpu.c owns MSR_LSTAR.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <linux/notifier.h>
#include <linux/printk.h>
#include <linux/string.h>

#include "compat/symbols.h"
#include "supervisor/kvm.h"
#include "supervisor/process.h"

static void pin_module(void)
{
	static bool is_pinned;

	if (is_pinned)
		return;
	is_pinned = true;
	__module_get(THIS_MODULE);
	pr_notice("KVM is loaded: this module cannot be unloaded until the machine restarts\n");
}

static int on_module(struct notifier_block *block, unsigned long state, void *data)
{
	const struct module *module = data;

	if (state != MODULE_STATE_COMING)
		return NOTIFY_OK;
	tlk_process_leave();
	if (!strcmp(module->name, "kvm"))
		pin_module();
	return NOTIFY_OK;
}

static struct notifier_block notifier = { .notifier_call = on_module };

int __init tlk_supervisor_kvm_init(void)
{
	int error = register_module_notifier(&notifier);

	if (!error && tlk_symbol("kvm_set_user_return_msr"))
		pin_module();
	return error;
}

void tlk_supervisor_kvm_exit(void)
{
	unregister_module_notifier(&notifier);
}
