// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sets the module's parts up, and takes them down in reverse order. This file owns the order, and
 * the proof that the binary interface has the frozen layout. It owns nothing else.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/build_bug.h>
#include <linux/module.h>
#include <linux/rcupdate.h>
#include <linux/stddef.h>
#include <linux/trapless.h>

#include "compat/sleep.h"
#include "compat/symbols.h"
#include "device.h"
#include "probe/probe.h"
#include "ring/dispatch.h"
#include "ring/request.h"
#include "ring/scandir.h"
#include "supervisor/supervisor.h"

#define TL_STRUCT(structure, bytes) static_assert(sizeof(struct structure) == (bytes));
#define TL_FIELD(structure, member, type, at, bytes)                  \
	static_assert(offsetof(struct structure, member) == (at) &&   \
		      sizeof_field(struct structure, member) == (bytes));
#include <linux/trapless_fields.h>

static int __init tlk_init(void)
{
	int error;

	error = tlk_symbols_init();
	if (error)
		return error;
	tlk_dispatch_init(tlk_syscall_table());
	tlk_scandir_init();
	error = tlk_request_init();
	if (error) {
		pr_err("cannot load: the ends of threads cannot be followed (error %d)\n", error);
		return error;
	}
	error = tlk_supervisor_init(tlk_syscall_table());
	if (error)
		goto err_request;
	error = tlk_probe_init(tlk_supervisor_is_offered());
	if (error)
		goto err_supervisor;
	tlk_dispatch_seal();
	/*
	 * This step is the last that may fail: the kernel frees a module whose load has failed,
	 * even while somebody has its device open. Where probes cannot be taken back, the module
	 * stays loaded without a device.
	 */
	error = tlk_device_init();
	if (error && tlk_probe_abandon())
		goto err_supervisor;
	return 0;

err_supervisor:
	tlk_supervisor_exit();
err_request:
	tlk_request_exit();
	return error;
}

/*
 * A thread that has dropped the last reference, or the state that held one, may still have to
 * execute its last instructions in the module. It does not sleep before it is back in the kernel's
 * text.
 */
static void __exit tlk_exit(void)
{
	tlk_device_exit();
	synchronize_rcu_tasks();
	tlk_probe_exit();
	tlk_supervisor_exit();
	tlk_request_exit();
	tlk_sleep_exit();
}

module_init(tlk_init);
module_exit(tlk_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("System calls without the trap: batches, workers, supervisor mode");
MODULE_VERSION(TLK_VERSION);
