/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Prints every size, offset and number of the binary interface, one `name value` a line, as the C
 * compiler at hand sees it. test_abi.py compares the lines with the frozen table and with
 * trapless/abi.py. It checks nothing itself.
 */
#include <stddef.h>
#include <stdio.h>

#include <linux/trapless.h>

#define NUMBER(name) printf("%s %lld\n", #name, (long long)(name))
#define SIZE(type) printf("%s %zu\n", #type, sizeof(struct type))
#define FIELD(type, field)                                                                \
	printf("%s.%s %zu %zu\n", #type, #field, offsetof(struct type, field),            \
	       sizeof(((struct type *)NULL)->field))

static void print_structs(void)
{
	SIZE(tl_request);
	FIELD(tl_request, nr);
	FIELD(tl_request, state);
	FIELD(tl_request, condition);
	FIELD(tl_request, target);
	FIELD(tl_request, args);
	FIELD(tl_request, result);
	SIZE(tl_program);
	FIELD(tl_program, at);
	FIELD(tl_program, stopped);
	FIELD(tl_program, steps);

	SIZE(tl_completions);
	FIELD(tl_completions, armed);
	FIELD(tl_completions, reserved);

	SIZE(tl_setup);
	FIELD(tl_setup, size);
	FIELD(tl_setup, flags);
	FIELD(tl_setup, entries);
	FIELD(tl_setup, spin_us);
	FIELD(tl_setup, reserved);

	SIZE(tl_info);
	FIELD(tl_info, size);
	FIELD(tl_info, abi);
	FIELD(tl_info, entries_max);
	FIELD(tl_info, calls_allowed);
	FIELD(tl_info, version);

	SIZE(tl_stats);
	FIELD(tl_stats, size);
	FIELD(tl_stats, reserved);
	FIELD(tl_stats, crossings);
	FIELD(tl_stats, executed);
	FIELD(tl_stats, refused);
	FIELD(tl_stats, interrupted);
	FIELD(tl_stats, bypassed);
	FIELD(tl_stats, sleeps);
	FIELD(tl_stats, wakeups);
	FIELD(tl_stats, dropped);
}

static void print_compound_structs(void)
{
	SIZE(tl_scan_entry);
	FIELD(tl_scan_entry, size);
	FIELD(tl_scan_entry, name_at);
	FIELD(tl_scan_entry, name_bytes);
	FIELD(tl_scan_entry, error);
	FIELD(tl_scan_entry, d_ino);
	FIELD(tl_scan_entry, d_off);
	FIELD(tl_scan_entry, mask);
	FIELD(tl_scan_entry, blksize);
	FIELD(tl_scan_entry, attributes);
	FIELD(tl_scan_entry, attributes_mask);
	FIELD(tl_scan_entry, nlink);
	FIELD(tl_scan_entry, uid);
	FIELD(tl_scan_entry, gid);
	FIELD(tl_scan_entry, mode);
	FIELD(tl_scan_entry, type);
	FIELD(tl_scan_entry, reserved);
	FIELD(tl_scan_entry, ino);
	FIELD(tl_scan_entry, bytes);
	FIELD(tl_scan_entry, blocks);
	FIELD(tl_scan_entry, atime_sec);
	FIELD(tl_scan_entry, btime_sec);
	FIELD(tl_scan_entry, ctime_sec);
	FIELD(tl_scan_entry, mtime_sec);
	FIELD(tl_scan_entry, atime_nsec);
	FIELD(tl_scan_entry, btime_nsec);
	FIELD(tl_scan_entry, ctime_nsec);
	FIELD(tl_scan_entry, mtime_nsec);
	FIELD(tl_scan_entry, rdev_major);
	FIELD(tl_scan_entry, rdev_minor);
	FIELD(tl_scan_entry, dev_major);
	FIELD(tl_scan_entry, dev_minor);
	FIELD(tl_scan_entry, mnt_id);
}

static void print_supervisor_structs(void)
{
	SIZE(tl_switch);
	FIELD(tl_switch, size);
	FIELD(tl_switch, mode);
	FIELD(tl_switch, pid);
	FIELD(tl_switch, flags);
	FIELD(tl_switch, refusal);
	FIELD(tl_switch, reserved);

	SIZE(tl_supervisor);
	FIELD(tl_supervisor, size);
	FIELD(tl_supervisor, processes);
	FIELD(tl_supervisor, refusals);
	FIELD(tl_supervisor, reserved);

	SIZE(tl_process);
	FIELD(tl_process, pid);
	FIELD(tl_process, mode);
	FIELD(tl_process, flags);
	FIELD(tl_process, threads);
	FIELD(tl_process, supervisor);
	FIELD(tl_process, resident);
	FIELD(tl_process, comm);
	FIELD(tl_process, calls_direct);
	FIELD(tl_process, calls_worked);
	FIELD(tl_process, calls_left);
	FIELD(tl_process, calls_kernel);
	FIELD(tl_process, switches);
	FIELD(tl_process, demotions);

	SIZE(tl_processes);
	FIELD(tl_processes, size);
	FIELD(tl_processes, entry_size);
	FIELD(tl_processes, count);
	FIELD(tl_processes, total);
	FIELD(tl_processes, entries);
	FIELD(tl_processes, reserved);
}

static void print_numbers(void)
{
	NUMBER(TL_ABI_VERSION);
	NUMBER(TL_ENTRIES_MAX);
	NUMBER(TL_SPIN_US_MAX);
	NUMBER(TL_FREE);
	NUMBER(TL_SUBMITTED);
	NUMBER(TL_RUNNING);
	NUMBER(TL_DONE);
	NUMBER(TL_CANCELED);
	NUMBER(TL_SETUP_WORKERS);
	NUMBER(TL_SETUP_COMPLETIONS);
	NUMBER(TL_SETUP_FLAGS);
	NUMBER(TL_IOC_INFO);
	NUMBER(TL_IOC_SETUP);
	NUMBER(TL_IOC_STATS);
	NUMBER(TL_IOC_ENTER);
	NUMBER(TL_IOC_EXIT);
	NUMBER(TL_IOC_WAKE);
	NUMBER(TL_IOC_RING);
	NUMBER(TL_ENTER_BATCH);
	NUMBER(TL_ENTER_NOTIFY);
	NUMBER(TL_ENTER_WAIT);
	NUMBER(TL_ENTER_PROGRAM);
	NUMBER(TL_ENTER_OFFSET);
	NUMBER(TL_ENTER_OTHER);
	NUMBER(TL_ANSWER);
	NUMBER(TL_NR_MASK);
	NUMBER(TL_NR_STORE);
	NUMBER(TL_NR_INCREASE);
	NUMBER(TL_NR_PROGRAM);
	NUMBER(TL_PROGRAM_CHAIN);
	NUMBER(TL_NR_SCANDIR);
	NUMBER(TL_SCAN_NO_DOTS);
	NUMBER(TL_SCAN_SYNC_TYPE);
	NUMBER(TL_SCAN_FLAGS);
	NUMBER(TL_SCAN_MASK);
	NUMBER(TL_SCAN_ENTRY_MAX);
	NUMBER(TL_RESULT(5));
	NUMBER(TL_WORD32(5));
	NUMBER(TL_WORD64(0));
	NUMBER(TL_JUMPS);
	NUMBER(TL_PROGRAM_BITS);
	NUMBER(TL_IF_ALWAYS);
	NUMBER(TL_IF_ERROR);
	NUMBER(TL_IF_SUCCESS);
	NUMBER(TL_IF_ZERO);
	NUMBER(TL_IF_POSITIVE);
	NUMBER(TL_IF_SHORT);
	NUMBER(TL_IF_FULL);
	NUMBER(TL_STOPPED_NEVER);
	NUMBER(TL_STOPPED_END);
	NUMBER(TL_STOPPED_SIGNAL);
	NUMBER(TL_STOPPED_STEPS);
	NUMBER(TL_STOPPED_BUSY);
	NUMBER(TL_STOPPED_PAUSE);
	NUMBER(TL_RING_PROGRAM_OFFSET(64));
	NUMBER(TL_RING_SUBMIT_OFFSET(64));
	NUMBER(TL_RING_BYTES(1));
	NUMBER(TL_RING_BYTES(64));
	NUMBER(TL_RING_BYTES(TL_ENTRIES_MAX));
	NUMBER(TL_WAIT(4096, 4095));
	NUMBER(TL_WAIT_US(4096, 4095, TL_WAIT_US_MAX));
	NUMBER(TL_RING_COMPLETIONS_OFFSET(64));
	NUMBER(TL_RING_COMPLETIONS_BYTES(1));
	NUMBER(TL_RING_COMPLETIONS_BYTES(TL_ENTRIES_MAX));
}

static void print_supervisor_numbers(void)
{
	NUMBER(TL_MODE_USER);
	NUMBER(TL_MODE_SUPERVISOR);
	NUMBER(TL_SWITCH_CHILDREN);
	NUMBER(TL_SWITCH_EXEC);
	NUMBER(TL_SWITCH_RESIDENT);
	NUMBER(TL_SWITCH_ANY_USER);
	NUMBER(TL_SWITCH_ALLOW_HLT);
	NUMBER(TL_SWITCH_FLAGS);
	NUMBER(TL_REFUSED_PARAMETER);
	NUMBER(TL_REFUSED_CONFIG);
	NUMBER(TL_REFUSED_SYMBOL);
	NUMBER(TL_REFUSED_PTI);
	NUMBER(TL_REFUSED_FRED);
	NUMBER(TL_REFUSED_LASS);
	NUMBER(TL_REFUSED_IBT);
	NUMBER(TL_REFUSED_SHSTK);
	NUMBER(TL_REFUSED_IBRS);
	NUMBER(TL_REFUSED_CALL_DEPTH);
	NUMBER(TL_REFUSED_XEN);
	NUMBER(TL_REFUSED_CONFIDENTIAL);
	NUMBER(TL_REFUSED_CONTEXT);
	NUMBER(TL_REFUSED_IST);
	NUMBER(TL_REFUSED_ENTRY);
	NUMBER(TL_REFUSED_LOCKDOWN);
	NUMBER(TL_REFUSED_NOT_CAPABLE);
	NUMBER(TL_REFUSED_OTHER_USER);
	NUMBER(TL_REFUSED_PRIVILEGED);
	NUMBER(TL_REFUSED_CONFINED);
	NUMBER(TL_REFUSED_COMPAT);
	NUMBER(TL_REFUSED_KERNEL_THREAD);
	NUMBER(TL_REFUSED_VCPU);
	NUMBER(TL_REFUSED_NOT_ROOTS);
	NUMBER(TL_REFUSED_TRACED);
	NUMBER(TL_REFUSED_HLT);
	NUMBER(TL_REFUSED_NONE);
	NUMBER(TL_REFUSALS_MACHINE);
	NUMBER(TL_DEMOTED_INTERRUPT);
	NUMBER(TL_DEMOTED_PAGE_FAULT);
	NUMBER(TL_DEMOTED_EXCEPTION);
	NUMBER(TL_DEMOTED_DEBUG);
	NUMBER(TL_DEMOTED_NMI);
	NUMBER(TL_DEMOTED_MACHINE_CHECK);
	NUMBER(TL_DEMOTED_COMPAT_CALL);
	NUMBER(TL_DEMOTED_EXIT);
	NUMBER(TL_DEMOTIONS);
	NUMBER(TL_IOC_SWITCH);
	NUMBER(TL_IOC_SUPERVISOR);
	NUMBER(TL_IOC_PROCESSES);
}

int main(void)
{
	printf("TL_DEVICE %s\n", TL_DEVICE);
	print_structs();
	print_numbers();
	print_compound_structs();
	print_supervisor_structs();
	print_supervisor_numbers();
	return 0;
}
