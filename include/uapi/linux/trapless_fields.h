/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * The layout of the binary interface: one row a structure of trapless.h and
 * trapless_compound.h, and one a member.
 *
 * Define what you need of these macros and include the file, which undefines them again:
 *
 *   TL_STRUCT(structure, size)
 *   TL_FIELD(structure, member, type, offset, size)   an array has the type of its elements
 *   TL_COUNT(member, offset)                          a count of struct tl_stats, a __u64; where it
 *                                                     is not defined, the row is a TL_FIELD
 *
 * The module asserts the rows. The declarations for ctypes, Rust and Python are made from them:
 * `python -m tests.abi.declarations` reads this file as text. Rows are sorted by offset.
 */
#ifndef TL_STRUCT
#define TL_STRUCT(structure, size)
#endif
#ifndef TL_FIELD
#define TL_FIELD(structure, member, type, offset, size)
#endif
#ifndef TL_COUNT
#define TL_COUNT(member, offset) TL_FIELD(tl_stats, member, __u64, offset, 8)
#endif

TL_STRUCT(tl_request, 64)
TL_FIELD(tl_request, nr, __u32, 0, 4)
TL_FIELD(tl_request, state, __u8, 4, 1)
TL_FIELD(tl_request, condition, __u8, 5, 1)
TL_FIELD(tl_request, target, __u16, 6, 2)
TL_FIELD(tl_request, args, __u64, 8, 48)
TL_FIELD(tl_request, result, __s64, 56, 8)

TL_STRUCT(tl_program, 16)
TL_FIELD(tl_program, at, __u32, 0, 4)
TL_FIELD(tl_program, stopped, __u32, 4, 4)
TL_FIELD(tl_program, steps, __u64, 8, 8)

TL_STRUCT(tl_completions, 64)
TL_FIELD(tl_completions, armed, __u32, 0, 4)
TL_FIELD(tl_completions, reserved, __u32, 4, 60)

TL_STRUCT(tl_setup, 32)
TL_FIELD(tl_setup, size, __u32, 0, 4)
TL_FIELD(tl_setup, flags, __u32, 4, 4)
TL_FIELD(tl_setup, entries, __u32, 8, 4)
TL_FIELD(tl_setup, spin_us, __u32, 12, 4)
TL_FIELD(tl_setup, reserved, __u64, 16, 16)

TL_STRUCT(tl_info, 48)
TL_FIELD(tl_info, size, __u32, 0, 4)
TL_FIELD(tl_info, abi, __u32, 4, 4)
TL_FIELD(tl_info, entries_max, __u32, 8, 4)
TL_FIELD(tl_info, calls_allowed, __u32, 12, 4)
TL_FIELD(tl_info, version, char, 16, 32)

TL_STRUCT(tl_stats, 72)
TL_FIELD(tl_stats, size, __u32, 0, 4)
TL_FIELD(tl_stats, reserved, __u32, 4, 4)
TL_COUNT(crossings, 8)		/* entries into the module: batch, notify, wait, worker */
TL_COUNT(executed, 16)		/* requests whose system call was made */
TL_COUNT(refused, 24)		/* requests answered without a call: unknown or not allowed */
TL_COUNT(interrupted, 32)	/* batches and worker runs ended early by a signal */
TL_COUNT(bypassed, 40)		/* entries answered -EBUSY: the thread is traced or audited */
TL_COUNT(sleeps, 48)		/* times a worker went to sleep */
TL_COUNT(wakeups, 56)		/* times a sleeping worker was woken for requests */
TL_COUNT(dropped, 64)		/* submitted slot numbers out of range, running or canceled */

TL_STRUCT(tl_scan_entry, 160)
TL_FIELD(tl_scan_entry, size, __u16, 0, 2)
TL_FIELD(tl_scan_entry, name_at, __u16, 2, 2)
TL_FIELD(tl_scan_entry, name_bytes, __u16, 4, 2)
TL_FIELD(tl_scan_entry, error, __s16, 6, 2)
TL_FIELD(tl_scan_entry, d_ino, __u64, 8, 8)
TL_FIELD(tl_scan_entry, d_off, __s64, 16, 8)
TL_FIELD(tl_scan_entry, mask, __u32, 24, 4)
TL_FIELD(tl_scan_entry, blksize, __u32, 28, 4)
TL_FIELD(tl_scan_entry, attributes, __u64, 32, 8)
TL_FIELD(tl_scan_entry, attributes_mask, __u64, 40, 8)
TL_FIELD(tl_scan_entry, nlink, __u32, 48, 4)
TL_FIELD(tl_scan_entry, uid, __u32, 52, 4)
TL_FIELD(tl_scan_entry, gid, __u32, 56, 4)
TL_FIELD(tl_scan_entry, mode, __u16, 60, 2)
TL_FIELD(tl_scan_entry, type, __u8, 62, 1)
TL_FIELD(tl_scan_entry, reserved, __u8, 63, 1)
TL_FIELD(tl_scan_entry, ino, __u64, 64, 8)
TL_FIELD(tl_scan_entry, bytes, __u64, 72, 8)
TL_FIELD(tl_scan_entry, blocks, __u64, 80, 8)
TL_FIELD(tl_scan_entry, atime_sec, __s64, 88, 8)
TL_FIELD(tl_scan_entry, btime_sec, __s64, 96, 8)
TL_FIELD(tl_scan_entry, ctime_sec, __s64, 104, 8)
TL_FIELD(tl_scan_entry, mtime_sec, __s64, 112, 8)
TL_FIELD(tl_scan_entry, atime_nsec, __u32, 120, 4)
TL_FIELD(tl_scan_entry, btime_nsec, __u32, 124, 4)
TL_FIELD(tl_scan_entry, ctime_nsec, __u32, 128, 4)
TL_FIELD(tl_scan_entry, mtime_nsec, __u32, 132, 4)
TL_FIELD(tl_scan_entry, rdev_major, __u32, 136, 4)
TL_FIELD(tl_scan_entry, rdev_minor, __u32, 140, 4)
TL_FIELD(tl_scan_entry, dev_major, __u32, 144, 4)
TL_FIELD(tl_scan_entry, dev_minor, __u32, 148, 4)
TL_FIELD(tl_scan_entry, mnt_id, __u64, 152, 8)

TL_STRUCT(tl_switch, 32)
TL_FIELD(tl_switch, size, __u32, 0, 4)
TL_FIELD(tl_switch, mode, __u32, 4, 4)
TL_FIELD(tl_switch, pid, __s32, 8, 4)
TL_FIELD(tl_switch, flags, __u32, 12, 4)
TL_FIELD(tl_switch, refusal, __u32, 16, 4)
TL_FIELD(tl_switch, reserved, __u32, 20, 12)

TL_STRUCT(tl_supervisor, 32)
TL_FIELD(tl_supervisor, size, __u32, 0, 4)
TL_FIELD(tl_supervisor, processes, __u32, 4, 4)
TL_FIELD(tl_supervisor, refusals, __u64, 8, 8)
TL_FIELD(tl_supervisor, reserved, __u64, 16, 16)

TL_STRUCT(tl_process, 144)
TL_FIELD(tl_process, pid, __s32, 0, 4)
TL_FIELD(tl_process, mode, __u32, 4, 4)
TL_FIELD(tl_process, flags, __u32, 8, 4)
TL_FIELD(tl_process, threads, __u32, 12, 4)
TL_FIELD(tl_process, supervisor, __u32, 16, 4)
TL_FIELD(tl_process, resident, __s32, 20, 4)
TL_FIELD(tl_process, comm, char, 24, 16)
TL_FIELD(tl_process, calls_direct, __u64, 40, 8)
TL_FIELD(tl_process, calls_worked, __u64, 48, 8)
TL_FIELD(tl_process, calls_left, __u64, 56, 8)
TL_FIELD(tl_process, calls_kernel, __u64, 64, 8)
TL_FIELD(tl_process, switches, __u64, 72, 8)
TL_FIELD(tl_process, demotions, __u64, 80, 64)

TL_STRUCT(tl_processes, 32)
TL_FIELD(tl_processes, size, __u32, 0, 4)
TL_FIELD(tl_processes, entry_size, __u32, 4, 4)
TL_FIELD(tl_processes, count, __u32, 8, 4)
TL_FIELD(tl_processes, total, __u32, 12, 4)
TL_FIELD(tl_processes, entries, __u64, 16, 8)
TL_FIELD(tl_processes, reserved, __u64, 24, 8)

#undef TL_STRUCT
#undef TL_FIELD
#undef TL_COUNT
