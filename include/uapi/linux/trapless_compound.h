/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * Compound calls: requests that Linux has no system call for. This file owns their numbers, flags
 * and layouts. It is a part of <linux/trapless.h>, which includes it.
 *
 * They stand where a call's number stands: in batches, in programs and on worker rings. A module or
 * a kernel that lacks one answers -ENOSYS. Where a filter, a tracer or audit watches the thread, a
 * batch or a program stops with TL_STOPPED_BUSY, and a worker with a filter answers -ENOSYS. The
 * requester then makes the plain calls, and whoever watches sees them.
 *
 * TL_NR_SCANDIR (directory, buffer, bytes, mask, flags): reads entries of an open directory and the
 * attributes of each. It is getdents64(2), and for each name in turn statx(2) with
 * AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, under the same checks and with the same results. The names
 * of one request are read first. Returns the bytes of the entries in the buffer, 0 at the end of
 * the directory, or -errno:
 *   -EBADF    the descriptor; -ENOTDIR where it is no directory
 *   -EINVAL   flags or mask are unknown, or the buffer is too small for the next entry: it takes
 *             any with TL_SCAN_ENTRY_MAX bytes
 *   -EINTR    a signal came before there was a name to return
 *   -EFAULT   the buffer cannot be written; and what else getdents64(2) returns
 *
 * Each name comes once, and the position of the descriptor moves as by getdents64(2). A failed
 * statx is `error` of its entry alone. -EINTR there means that the attributes are not in the entry,
 * because a signal came or the buffer could no longer be written: the requester may ask for them by
 * statx(2).
 */
#ifndef _UAPI_LINUX_TRAPLESS_COMPOUND_H
#define _UAPI_LINUX_TRAPLESS_COMPOUND_H

#include <linux/trapless.h>

#define TL_NR_SCANDIR 0xffcu

/* Flags: one of AT_STATX_SYNC_AS_STAT, _FORCE_SYNC and _DONT_SYNC as in statx(2), and these. */
#define TL_SCAN_NO_DOTS (1u << 0)	/* leave out "." and ".." */
#define TL_SCAN_SYNC_TYPE 0x6000u	/* AT_STATX_SYNC_TYPE */
#define TL_SCAN_FLAGS (TL_SCAN_NO_DOTS | TL_SCAN_SYNC_TYPE)

/* The bits of a statx mask that an entry has fields for; other bits are ignored. */
#define TL_SCAN_MASK 0x5fffu	/* STATX_BASIC_STATS, _BTIME, _MNT_ID and _MNT_ID_UNIQUE */

/*
 * An entry of a directory. Its size is a multiple of 8, so all entries are aligned where the buffer
 * is. The name stands at `name_at`, ends with a zero byte, and zeros fill the entry up. Later
 * interfaces may put fields in between, so a reader goes on by `size` and finds the name by
 * `name_at`. The fields from `mask` on, but for `type`, are those of struct statx, and zero where
 * statx(2) failed.
 */
struct tl_scan_entry {
	__u16 size;		/* of the entry with its name, bytes */
	__u16 name_at;		/* where the name begins, bytes from the entry's beginning */
	__u16 name_bytes;	/* without the zero byte */
	__s16 error;		/* of statx: 0 or -errno */
	__u64 d_ino;		/* as getdents64 has it */
	__s64 d_off;		/* where the next entry is: lseek(2) goes there */
	__u32 mask;		/* STATX_*: which fields are valid */
	__u32 blksize;
	__u64 attributes;
	__u64 attributes_mask;
	__u32 nlink;
	__u32 uid;
	__u32 gid;
	__u16 mode;
	__u8 type;		/* DT_*, as getdents64 has it */
	__u8 reserved;		/* zero */
	__u64 ino;
	__u64 bytes;		/* stx_size */
	__u64 blocks;
	__s64 atime_sec;
	__s64 btime_sec;
	__s64 ctime_sec;
	__s64 mtime_sec;
	__u32 atime_nsec;
	__u32 btime_nsec;
	__u32 ctime_nsec;
	__u32 mtime_nsec;
	__u32 rdev_major;
	__u32 rdev_minor;
	__u32 dev_major;
	__u32 dev_minor;
	__u64 mnt_id;
};

#define TL_SCAN_ENTRY_MAX 4256u	/* the largest entry: a name of 4,095 bytes */

static __inline__ const char *tl_scan_name(const struct tl_scan_entry *entry)
{
	return TL_CAST(const char *, TL_CAST(const void *, entry)) + entry->name_at;
}

/* The entry behind this one; where the bytes of the request end there is none. */
static __inline__ const struct tl_scan_entry *tl_scan_after(const struct tl_scan_entry *entry)
{
	const char *bytes = TL_CAST(const char *, TL_CAST(const void *, entry));

	return TL_CAST(const struct tl_scan_entry *,
		       TL_CAST(const void *, bytes + entry->size));
}

#endif /* _UAPI_LINUX_TRAPLESS_COMPOUND_H */
