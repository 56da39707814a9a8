/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * Directories with the attributes of their entries: tl_scan reads one directory after another,
 * tl_walk a whole tree. The tl_walk part of trapless.h, which includes it.
 *
 * With the module one request reads many names together with their attributes (TL_NR_SCANDIR).
 * Without it, and where a thread is traced, audited or filtered, the library makes getdents64(2)
 * and a statx(2) for each name. The entries are the same, in the same order. So a compound call
 * needs no module to be used, only to be fast.
 *
 * Concurrency: one thread at a time may use a struct tl_scan or tl_walk. In the child of a fork
 * both go on by plain calls; an open directory has one position, which parent and child share.
 */
#ifndef TRAPLESS_WALK_H
#define TRAPLESS_WALK_H

#include <linux/stat.h>
#include <trapless.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- One directory ----------------------------------------------------------------------- */

struct tl_scan;

/*
 * Creates a reader of directories. It serves one after the other, since its ring in the module
 * costs more than a small directory. mask: STATX_* of the attributes that are wanted; 0 means
 * STATX_BASIC_STATS. flags: TL_PLAIN or TL_MODULE as for tl_batch_create(), or 0. Returns 0 or
 * -errno.
 */
int tl_scan_create(struct tl_scan **scan, unsigned int mask, unsigned int flags);
void tl_scan_destroy(struct tl_scan *scan);
/* Closes the directory that is open, and opens another one as openat(2). Returns 0 or -errno. */
int tl_scan_open(struct tl_scan *scan, int dirfd, const char *path);
void tl_scan_close(struct tl_scan *scan);
/*
 * Takes the next entry: 1, 0 at the end, or -errno if the directory cannot be read on. *entry is
 * valid until the next call for this scan. "." and ".." are left out. If the attributes of an
 * entry could not be read, its `error` is the -errno of statx(2), and its name is valid.
 */
int tl_scan_next(struct tl_scan *scan, const struct tl_scan_entry **entry);
/* The descriptor of the open directory, or -1. */
int tl_scan_fd(const struct tl_scan *scan);
/* TL_BACKEND_MODULE while directories are read by compound calls. */
enum tl_backend tl_scan_backend(const struct tl_scan *scan);

/* ---- A tree ------------------------------------------------------------------------------ */

struct tl_walk;

#define TL_WALK_BREADTH_FIRST (1u << 8)	/* all entries of a depth before those of the next */
#define TL_WALK_LEAVE (1u << 9)		/* TL_WALK_LEFT after all entries below a directory */
#define TL_WALK_ONE_DEVICE (1u << 10)	/* directories of other file systems are not entered */
/* If the root is a symbolic link, what it leads to is walked through. */
#define TL_WALK_FOLLOW_ROOT (1u << 11)
/* The same for every link. One that leads nowhere is an entry itself. */
#define TL_WALK_FOLLOW (1u << 12)
#define TL_WALK_BY_NAME (1u << 13)	/* the entries of a directory in the order of strcmp(3) */
#define TL_WALK_BY_INODE (1u << 14)	/* or of inodes, in which disks read files faster */

enum tl_walk_kind {
	TL_WALK_ENTRY = 0,	/* an entry; if it is a directory, what is in it follows */
	TL_WALK_LEFT = 1,	/* a directory once more, with TL_WALK_LEAVE */
	TL_WALK_CYCLE = 2,	/* a directory that is its own ancestor; it is not entered */
	TL_WALK_UNREADABLE = 3,	/* a directory that could not be opened, or not read to its end */
};

/* What tl_walk_next() returns. It is valid until the next call for this walk. */
struct tl_walk_entry {
	enum tl_walk_kind kind;
	int error;		/* 0, or the -errno of reading the attributes or the directory */
	uint32_t depth;		/* 0 is the root */
	uint32_t name_bytes;
	size_t path_bytes;
	const char *path;	/* the root as it was given, and names; it may exceed PATH_MAX */
	const char *name;	/* the end of the path; for the root all of it */
	/* With TL_WALK_FOLLOW those of a link's target. The root's have no name. */
	const struct tl_scan_entry *attributes;
};

/*
 * Begins a walk at a directory, or at another file, which then is the only entry. mask as for
 * tl_scan_create(); TYPE, MODE and INO are always read. flags: TL_WALK_*, and TL_PLAIN or
 * TL_MODULE. descriptors: how many directories may be open at once, at least 3; 0 means 64.
 * Returns 0 or -errno: the root's attributes cannot be read, memory is short, or
 * -EINVAL: an unknown flag, or both orders.
 */
int tl_walk_create(struct tl_walk **walk, int dirfd, const char *path, unsigned int mask,
		   unsigned int flags, unsigned int descriptors);
void tl_walk_destroy(struct tl_walk *walk);
/* Takes the next entry: 1, 0 at the end, or -ENOMEM. An error of a file is in its entry. */
int tl_walk_next(struct tl_walk *walk, const struct tl_walk_entry **entry);
/* The directory that was returned last as TL_WALK_ENTRY is not entered. */
void tl_walk_skip(struct tl_walk *walk);
/*
 * A descriptor of the directory in which the entry that was returned last has its name, or -errno
 * if it cannot be opened again. It belongs to the walk, and is valid until the next call. For the
 * root it is the dirfd of tl_walk_create().
 */
int tl_walk_fd(struct tl_walk *walk);
/* TL_BACKEND_MODULE while directories are read by compound calls. */
enum tl_backend tl_walk_backend(const struct tl_walk *walk);
/* Why directories are read by plain calls, in words as of tl_batch_reason(); NULL: they are not. */
const char *tl_walk_reason(const struct tl_walk *walk);

struct tl_walk_stats {
	uint32_t size;
	uint32_t reserved;
	uint64_t entries;	/* returned by tl_walk_next() */
	uint64_t directories;	/* opened to be read */
	uint64_t requests;	/* for many entries, that the module has answered */
	uint64_t calls;		/* plain system calls */
	uint64_t crossings;	/* into the kernel, for calls and requests */
};
/* The caller sets stats->size; fields beyond it are left alone. -EINVAL: it is 0. */
int tl_walk_get_stats(const struct tl_walk *walk, struct tl_walk_stats *stats);

#ifdef __cplusplus
}
#endif

#endif /* TRAPLESS_WALK_H */
