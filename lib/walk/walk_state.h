/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * Shared by the files of the walk. scan.c owns how entries get into memory, with the module and
 * without; walk.c the order in which a tree's entries are returned; directory.c which directories
 * are open, and how one that was closed is opened again.
 */
#ifndef TRAPLESS_LIB_WALK_STATE_H
#define TRAPLESS_LIB_WALK_STATE_H

#include "../enter.h"

#include <stddef.h>
#include <stdint.h>
#include <trapless_walk.h>

/* ---- scan.c ------------------------------------------------------------------------------ */

/* Memory that grows, and whose bytes move then: what is in it is named by its offset. */
struct arena {
	char *bytes;
	size_t used, size;
};

/* Makes room for that many bytes behind those in use. Returns 0 or -ENOMEM. */
int tl_arena_reserve(struct arena *arena, size_t bytes);

struct tl_scan {
	struct tl_batch *batch;
	enum tl_backend backend;
	const char *reason;	/* why that is plain calls, or NULL */
	unsigned int mask;
	char *names;		/* what getdents64(2) reads, or NULL */
	/* Of tl_scan_open() alone. */
	int fd;
	bool ended;
	int error;		/* to be returned behind the entries in the arena, or 0 */
	struct arena arena;
	size_t at;		/* the next entry in the arena */
	/* For struct tl_walk_stats. */
	uint64_t calls, requests, flushes;
};

/* Makes a system call by a crossing of its own. */
static inline long plain_call(struct tl_scan *scan, long nr, uint64_t a0, uint64_t a1, uint64_t a2,
			      uint64_t a3, uint64_t a4)
{
	scan->calls++;
	return raw_syscall(nr, a0, a1, a2, a3, a4, 0);
}

/*
 * Appends the next entries of an open directory to the arena; *ended: there are no more. Returns 0
 * or -errno. Entries that were read before an error stay.
 */
int tl_scan_read(struct tl_scan *scan, int fd, struct arena *arena, bool *ended);
/*
 * Reads the attributes of one path into an entry. flags are those of statx(2). Returns 0, or
 * -errno: then the entry stays as it is.
 */
int tl_scan_attributes(struct tl_scan *scan, int dirfd, const char *path, int flags,
		       struct tl_scan_entry *entry);

/* ---- directory.c ------------------------------------------------------------------------- */

/* A directory that is entered, or will be. */
struct dir {
	struct dir *parent;		/* NULL: the root */
	struct dir *next;		/* in the queue of a walk that goes breadth first */
	struct dir *older, *newer;	/* among the open directories, but for the root */
	uint32_t references;		/* from the walk, and from each directory below it */
	uint32_t depth;
	int fd;				/* -1: not open */
	int error;			/* that is still to be returned, or 0 */
	bool opened;			/* it has been: device and inode are those of that time */
	bool left;			/* TL_WALK_LEFT has been returned */
	uint64_t device, inode;
	size_t path_bytes;
	/* In the walk's arena: what belongs to it begins there, and its entries or their index. */
	size_t begin, at, end;
	struct tl_scan_entry entry;	/* its own, with its name behind it */
};

struct tl_walk {
	struct tl_scan *scan;
	unsigned int flags;
	int dirfd;			/* of the root's path */
	struct tl_walk_entry entry;	/* the last one that was returned */
	struct dir *root;
	struct dir *dir;		/* whose entries are returned, or NULL */
	struct dir *pending;		/* the last entry, which is to be entered, or NULL */
	struct dir *first, *last;	/* breadth first: those that wait */
	struct arena entries;
	struct arena path;		/* with a zero byte behind it */
	/* Open directories without the root, by their last use. */
	struct dir *oldest, *newest;
	unsigned int open, open_max;
	uint64_t returned, directories;	/* for struct tl_walk_stats */
};

/* A reference to a directory of this entry, or NULL. */
struct dir *tl_dir_create(struct dir *parent, const struct tl_scan_entry *entry, size_t path_bytes);
/* Gives back a reference; the last one closes the directory. */
void tl_dir_release(struct tl_walk *walk, struct dir *dir);
/* Opens a directory for the first time; walk->path begins with its path. Returns 0 or -errno. */
int tl_dir_open(struct tl_walk *walk, struct dir *dir);
/*
 * A descriptor of a directory that was opened before and is on walk->path. -errno if it cannot be
 * opened again; -ESTALE: another one has its path.
 */
int tl_dir_fd(struct tl_walk *walk, struct dir *dir);
/* Depth first: opens the parent from `dir`, if it is closed and has further entries. */
void tl_dir_leave(struct tl_walk *walk, struct dir *dir);

/* A device as one number. */
static inline uint64_t tl_device_of(uint32_t major, uint32_t minor)
{
	return (uint64_t)major << 32 | minor;
}

#endif /* TRAPLESS_LIB_WALK_STATE_H */
