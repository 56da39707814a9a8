/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Reads directories by TL_NR_SCANDIR and by getdents64 with statx, and compares the entries. It
 * owns what an entry must look like, and checks nothing of a place's contents.
 */
#ifndef TL_TEST_SCAN_H
#define TL_TEST_SCAN_H

#include <dirent.h>
#include <linux/stat.h>
#include <stddef.h>

#include "ring.h"

#define SCAN_ALL (STATX_BASIC_STATS | STATX_BTIME | STATX_MNT_ID)
#define SCAN_HOW (AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT)

struct plain_entry {
	uint64_t ino;
	int64_t off;
	uint16_t size;
	uint8_t type;
	char name[];
};

static inline long scan(struct ring *ring, long fd, void *buffer, size_t bytes, unsigned int mask,
			unsigned int flags)
{
	return batch_call(ring, TL_NR_SCANDIR, fd, buffer, bytes, mask, flags);
}

static inline int open_directory(const char *path)
{
	return (int)sys(SYS_openat, AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* Checks an entry's own form: its size, its name, and that what fills it up is zero. */
static inline void scan_check_form(const struct tl_scan_entry *entry, size_t left)
{
	const char *name = tl_scan_name(entry);

	CHECK_WITHIN(entry->size, sizeof(*entry) + 8, left);
	CHECK_EQ(entry->size % 8, 0);
	CHECK_EQ(entry->name_at, sizeof(*entry));
	CHECK_EQ(strnlen(name, entry->size - entry->name_at), entry->name_bytes);
	CHECK_EQ(entry->size, sizeof(*entry) + (entry->name_bytes + 8u) / 8 * 8);
	for (size_t at = entry->name_at + entry->name_bytes; at < entry->size; at++)
		CHECK_EQ(((const char *)entry)[at], 0);
	CHECK_WITHIN(entry->error, -4095, 0);
}

/* An entry with an error has no attributes. */
static inline void scan_check_zeros(const struct tl_scan_entry *entry)
{
	CHECK_EQ(entry->reserved, 0);
	for (size_t at = offsetof(struct tl_scan_entry, mask); entry->error && at < sizeof(*entry);
	     at++)
		if (at != offsetof(struct tl_scan_entry, type))
			CHECK_EQ(((const char *)entry)[at], 0);
}

#define scan_each(entry, buffer, bytes)							\
	for (const struct tl_scan_entry *entry = (const void *)(buffer);			\
	     (const char *)entry < (const char *)(buffer) + (bytes); entry = tl_scan_after(entry))

#define SCAN_DIFFERS(field, plain)							\
	do {										\
		if ((uint64_t)entry->field != (uint64_t)(plain))				\
			return #field;							\
	} while (0)
#define SCAN_TIME_DIFFERS(time)								\
	do {										\
		SCAN_DIFFERS(time##_sec, stat->stx_##time.tv_sec);			\
		SCAN_DIFFERS(time##_nsec, stat->stx_##time.tv_nsec);			\
	} while (0)

/* The field in which an entry differs from statx(), or NULL. `error` is what statx() returned. */
static inline const char *scan_differs(const struct tl_scan_entry *entry, long error,
				       const struct statx *stat)
{
	if (entry->error != error)
		return "error";
	if (error)
		return NULL;
	SCAN_DIFFERS(mask, stat->stx_mask & TL_SCAN_MASK);
	SCAN_DIFFERS(blksize, stat->stx_blksize);
	SCAN_DIFFERS(attributes, stat->stx_attributes);
	SCAN_DIFFERS(attributes_mask, stat->stx_attributes_mask);
	SCAN_DIFFERS(nlink, stat->stx_nlink);
	SCAN_DIFFERS(uid, stat->stx_uid);
	SCAN_DIFFERS(gid, stat->stx_gid);
	SCAN_DIFFERS(mode, stat->stx_mode);
	SCAN_DIFFERS(ino, stat->stx_ino);
	SCAN_DIFFERS(bytes, stat->stx_size);
	SCAN_DIFFERS(blocks, stat->stx_blocks);
	SCAN_TIME_DIFFERS(atime);
	SCAN_TIME_DIFFERS(btime);
	SCAN_TIME_DIFFERS(ctime);
	SCAN_TIME_DIFFERS(mtime);
	SCAN_DIFFERS(rdev_major, stat->stx_rdev_major);
	SCAN_DIFFERS(rdev_minor, stat->stx_rdev_minor);
	SCAN_DIFFERS(dev_major, stat->stx_dev_major);
	SCAN_DIFFERS(dev_minor, stat->stx_dev_minor);
	SCAN_DIFFERS(mnt_id, stat->stx_mnt_id);
	return NULL;
}

#endif /* TL_TEST_SCAN_H */
