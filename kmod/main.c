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
#include "ring/policy.h"
#include "ring/request.h"
#include "supervisor/supervisor.h"

#define CHECK_SIZE(type, bytes) static_assert(sizeof(type) == (bytes))
#define CHECK_FIELD(type, field, at, bytes) \
	static_assert(offsetof(type, field) == (at) && sizeof_field(type, field) == (bytes))

CHECK_SIZE(struct tl_request, 64);
CHECK_FIELD(struct tl_request, nr, 0, 4);
CHECK_FIELD(struct tl_request, state, 4, 1);
CHECK_FIELD(struct tl_request, condition, 5, 1);
CHECK_FIELD(struct tl_request, target, 6, 2);
CHECK_FIELD(struct tl_request, args, 8, 48);
CHECK_FIELD(struct tl_request, result, 56, 8);

CHECK_SIZE(struct tl_program, 16);
CHECK_FIELD(struct tl_program, at, 0, 4);
CHECK_FIELD(struct tl_program, stopped, 4, 4);
CHECK_FIELD(struct tl_program, steps, 8, 8);

CHECK_SIZE(struct tl_completions, 64);
CHECK_FIELD(struct tl_completions, armed, 0, 4);
CHECK_FIELD(struct tl_completions, reserved, 4, 60);

CHECK_SIZE(struct tl_setup, 32);
CHECK_FIELD(struct tl_setup, size, 0, 4);
CHECK_FIELD(struct tl_setup, flags, 4, 4);
CHECK_FIELD(struct tl_setup, entries, 8, 4);
CHECK_FIELD(struct tl_setup, spin_us, 12, 4);
CHECK_FIELD(struct tl_setup, reserved, 16, 16);

CHECK_SIZE(struct tl_info, 48);
CHECK_FIELD(struct tl_info, size, 0, 4);
CHECK_FIELD(struct tl_info, abi, 4, 4);
CHECK_FIELD(struct tl_info, entries_max, 8, 4);
CHECK_FIELD(struct tl_info, calls_allowed, 12, 4);
CHECK_FIELD(struct tl_info, version, 16, 32);

CHECK_SIZE(struct tl_stats, 72);
CHECK_FIELD(struct tl_stats, size, 0, 4);
CHECK_FIELD(struct tl_stats, reserved, 4, 4);
CHECK_FIELD(struct tl_stats, crossings, 8, 8);
CHECK_FIELD(struct tl_stats, executed, 16, 8);
CHECK_FIELD(struct tl_stats, refused, 24, 8);
CHECK_FIELD(struct tl_stats, interrupted, 32, 8);
CHECK_FIELD(struct tl_stats, bypassed, 40, 8);
CHECK_FIELD(struct tl_stats, sleeps, 48, 8);
CHECK_FIELD(struct tl_stats, wakeups, 56, 8);
CHECK_FIELD(struct tl_stats, dropped, 64, 8);

CHECK_SIZE(struct tl_scan_entry, 160);
CHECK_FIELD(struct tl_scan_entry, size, 0, 2);
CHECK_FIELD(struct tl_scan_entry, name_at, 2, 2);
CHECK_FIELD(struct tl_scan_entry, name_bytes, 4, 2);
CHECK_FIELD(struct tl_scan_entry, error, 6, 2);
CHECK_FIELD(struct tl_scan_entry, d_ino, 8, 8);
CHECK_FIELD(struct tl_scan_entry, d_off, 16, 8);
CHECK_FIELD(struct tl_scan_entry, mask, 24, 4);
CHECK_FIELD(struct tl_scan_entry, blksize, 28, 4);
CHECK_FIELD(struct tl_scan_entry, attributes, 32, 8);
CHECK_FIELD(struct tl_scan_entry, attributes_mask, 40, 8);
CHECK_FIELD(struct tl_scan_entry, nlink, 48, 4);
CHECK_FIELD(struct tl_scan_entry, uid, 52, 4);
CHECK_FIELD(struct tl_scan_entry, gid, 56, 4);
CHECK_FIELD(struct tl_scan_entry, mode, 60, 2);
CHECK_FIELD(struct tl_scan_entry, type, 62, 1);
CHECK_FIELD(struct tl_scan_entry, reserved, 63, 1);
CHECK_FIELD(struct tl_scan_entry, ino, 64, 8);
CHECK_FIELD(struct tl_scan_entry, bytes, 72, 8);
CHECK_FIELD(struct tl_scan_entry, blocks, 80, 8);
CHECK_FIELD(struct tl_scan_entry, atime_sec, 88, 8);
CHECK_FIELD(struct tl_scan_entry, btime_sec, 96, 8);
CHECK_FIELD(struct tl_scan_entry, ctime_sec, 104, 8);
CHECK_FIELD(struct tl_scan_entry, mtime_sec, 112, 8);
CHECK_FIELD(struct tl_scan_entry, atime_nsec, 120, 4);
CHECK_FIELD(struct tl_scan_entry, btime_nsec, 124, 4);
CHECK_FIELD(struct tl_scan_entry, ctime_nsec, 128, 4);
CHECK_FIELD(struct tl_scan_entry, mtime_nsec, 132, 4);
CHECK_FIELD(struct tl_scan_entry, rdev_major, 136, 4);
CHECK_FIELD(struct tl_scan_entry, rdev_minor, 140, 4);
CHECK_FIELD(struct tl_scan_entry, dev_major, 144, 4);
CHECK_FIELD(struct tl_scan_entry, dev_minor, 148, 4);
CHECK_FIELD(struct tl_scan_entry, mnt_id, 152, 8);

CHECK_SIZE(struct tl_switch, 32);
CHECK_FIELD(struct tl_switch, size, 0, 4);
CHECK_FIELD(struct tl_switch, mode, 4, 4);
CHECK_FIELD(struct tl_switch, pid, 8, 4);
CHECK_FIELD(struct tl_switch, flags, 12, 4);
CHECK_FIELD(struct tl_switch, refusal, 16, 4);
CHECK_FIELD(struct tl_switch, reserved, 20, 12);

CHECK_SIZE(struct tl_supervisor, 32);
CHECK_FIELD(struct tl_supervisor, size, 0, 4);
CHECK_FIELD(struct tl_supervisor, processes, 4, 4);
CHECK_FIELD(struct tl_supervisor, refusals, 8, 8);
CHECK_FIELD(struct tl_supervisor, reserved, 16, 16);

CHECK_SIZE(struct tl_process, 144);
CHECK_FIELD(struct tl_process, pid, 0, 4);
CHECK_FIELD(struct tl_process, mode, 4, 4);
CHECK_FIELD(struct tl_process, flags, 8, 4);
CHECK_FIELD(struct tl_process, threads, 12, 4);
CHECK_FIELD(struct tl_process, supervisor, 16, 4);
CHECK_FIELD(struct tl_process, resident, 20, 4);
CHECK_FIELD(struct tl_process, comm, 24, 16);
CHECK_FIELD(struct tl_process, calls_direct, 40, 8);
CHECK_FIELD(struct tl_process, calls_worked, 48, 8);
CHECK_FIELD(struct tl_process, calls_left, 56, 8);
CHECK_FIELD(struct tl_process, calls_kernel, 64, 8);
CHECK_FIELD(struct tl_process, switches, 72, 8);
CHECK_FIELD(struct tl_process, demotions, 80, 64);

CHECK_SIZE(struct tl_processes, 32);
CHECK_FIELD(struct tl_processes, size, 0, 4);
CHECK_FIELD(struct tl_processes, entry_size, 4, 4);
CHECK_FIELD(struct tl_processes, count, 8, 4);
CHECK_FIELD(struct tl_processes, total, 12, 4);
CHECK_FIELD(struct tl_processes, entries, 16, 8);
CHECK_FIELD(struct tl_processes, reserved, 24, 8);

static int __init tlk_init(void)
{
	int error;

	error = tlk_symbols_init();
	if (error)
		return error;
	tlk_policy_init(tlk_syscall_table());
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
