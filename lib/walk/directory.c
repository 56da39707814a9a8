// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * The directories of a walk. It owns their descriptors, and bounds how many are open at once.
 *
 * A directory is opened by its name, relative to its parent, so that a path may be longer than the
 * kernel takes. When descriptors run short, the one that was used least recently is closed: depth
 * first it is needed last. It is opened again from a child by "..", or along the path, and either
 * way it must be the same device and inode as before. The root stays open.
 */
#include "walk_state.h"
#include "../internal.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define FIRST (O_RDONLY | O_DIRECTORY | O_CLOEXEC)
/* All of it has been read: it serves as the place of names alone. */
#define AGAIN (O_PATH | O_DIRECTORY | O_CLOEXEC)

struct dir *tl_dir_create(struct dir *parent, const struct tl_scan_entry *entry, size_t path_bytes)
{
	struct dir *dir = tl_heap_resize(NULL, 1, offsetof(struct dir, entry) + entry->size);

	if (!dir)
		return NULL;
	*dir = (struct dir){
		.parent = parent,
		.references = 1,
		.depth = parent ? parent->depth + 1 : 0,
		.fd = -1,
		.device = tl_device_of(entry->dev_major, entry->dev_minor),
		.inode = entry->ino,
		.path_bytes = path_bytes,
	};
	memcpy((char *)dir + offsetof(struct dir, entry), entry, entry->size);
	if (parent)
		parent->references++;
	return dir;
}

/* ---- Which are open ------------------------------------------------------------------------ */

static void link_newest(struct tl_walk *walk, struct dir *dir)
{
	dir->newer = NULL;
	dir->older = walk->newest;
	*(dir->older ? &dir->older->newer : &walk->oldest) = dir;
	walk->newest = dir;
}

static void unlink_open(struct tl_walk *walk, struct dir *dir)
{
	*(dir->older ? &dir->older->newer : &walk->oldest) = dir->newer;
	*(dir->newer ? &dir->newer->older : &walk->newest) = dir->older;
}

static void close_fd(const struct tl_walk *walk, long fd)
{
	plain_call(walk->scan, SYS_close, (uint64_t)fd, 0, 0, 0, 0);
}

static void close_dir(struct tl_walk *walk, struct dir *dir)
{
	if (dir->fd < 0)
		return;
	close_fd(walk, dir->fd);
	dir->fd = -1;
	if (!dir->parent)
		return;
	unlink_open(walk, dir);
	walk->open--;
}

static void adopt(struct tl_walk *walk, struct dir *dir, int fd)
{
	dir->fd = fd;
	if (!dir->parent)
		return;
	link_newest(walk, dir);
	walk->open++;
}

void tl_dir_release(struct tl_walk *walk, struct dir *dir)
{
	while (dir && !--dir->references) {
		struct dir *parent = dir->parent;

		close_dir(walk, dir);
		free(dir);
		dir = parent;
	}
}

/* Closes the directory that was used least recently, but not `keep`. False: there is none. */
static bool close_oldest(struct tl_walk *walk, const struct dir *keep)
{
	struct dir *oldest = walk->oldest;

	if (oldest && oldest == keep)
		oldest = oldest->newer;
	if (!oldest)
		return false;
	close_dir(walk, oldest);
	return true;
}

static long open_at(struct tl_walk *walk, int at, const char *path, int flags,
		    const struct dir *keep)
{
	long fd;

	while (walk->open >= walk->open_max && close_oldest(walk, keep))
		;
	do
		fd = plain_call(walk->scan, SYS_openat, (uint64_t)at, (uintptr_t)path,
				(uint64_t)flags, 0, 0);
	while ((fd == -EMFILE || fd == -ENFILE) && close_oldest(walk, keep));
	return fd;
}

static int no_follow(const struct tl_walk *walk, const struct dir *dir)
{
	unsigned int follow = dir->parent ? TL_WALK_FOLLOW : TL_WALK_FOLLOW | TL_WALK_FOLLOW_ROOT;

	return walk->flags & follow ? 0 : O_NOFOLLOW;
}

/* Is the descriptor that of the directory? If it was not opened before, it is from now on. */
static bool is_same(const struct tl_walk *walk, long fd, struct dir *dir)
{
	struct stat stat;
	uint64_t device;

	if (plain_call(walk->scan, SYS_fstat, (uint64_t)fd, (uintptr_t)&stat, 0, 0, 0))
		return false;
	device = tl_device_of(major(stat.st_dev), minor(stat.st_dev));
	if (dir->opened)
		return device == dir->device && stat.st_ino == dir->inode;
	dir->opened = true;
	dir->device = device;
	dir->inode = stat.st_ino;
	return true;
}

/* ---- Opening ------------------------------------------------------------------------------- */

int tl_dir_open(struct tl_walk *walk, struct dir *dir)
{
	int at = dir->parent ? tl_dir_fd(walk, dir->parent) : walk->dirfd;
	const char *name = dir->parent ? tl_scan_name(&dir->entry) : walk->path.bytes;
	long fd;

	if (dir->parent && at < 0)
		return at;
	fd = open_at(walk, at, name, FIRST | no_follow(walk, dir), dir->parent);
	if (fd < 0)
		return (int)fd;
	is_same(walk, fd, dir);
	adopt(walk, dir, (int)fd);
	walk->directories++;
	return 0;
}

/* The end of the longest part of path[0..bytes-1] that the kernel takes and that ends a name. */
static size_t hop(const char *path, size_t bytes)
{
	if (bytes < PATH_MAX)
		return bytes;
	bytes = PATH_MAX - 1;
	while (bytes && path[bytes] != '/')
		bytes--;
	return bytes ? bytes : PATH_MAX - 1;
}

/* Opens what is at `path`, relative to a directory, in as many steps as the kernel needs. */
static long open_path(struct tl_walk *walk, int at, const char *path, size_t bytes, int flags,
		      const struct dir *keep)
{
	char part[PATH_MAX];
	long fd = -1, base = -1;

	while (bytes) {
		size_t n = hop(path, bytes);

		memcpy(part, path, n);
		part[n] = '\0';
		fd = open_at(walk, base < 0 ? at : (int)base, part,
			     n == bytes ? flags : flags & ~O_NOFOLLOW, keep);
		if (base >= 0)
			close_fd(walk, base);
		if (fd < 0)
			break;
		base = fd;
		path += n;
		bytes -= n;
		while (bytes && *path == '/') {
			path++;
			bytes--;
		}
	}
	return fd;
}

int tl_dir_fd(struct tl_walk *walk, struct dir *dir)
{
	struct dir *up = dir;
	const char *from;
	long fd;

	if (dir->fd >= 0) {
		if (dir->parent && walk->newest != dir) {
			unlink_open(walk, dir);
			link_newest(walk, dir);
		}
		return dir->fd;
	}
	while (up->fd < 0)
		up = up->parent;
	from = walk->path.bytes + up->path_bytes;
	fd = open_path(walk, up->fd, from + (*from == '/'),
		       dir->path_bytes - up->path_bytes - (*from == '/'),
		       AGAIN | no_follow(walk, dir), up);
	if (fd < 0)
		return (int)fd;
	if (!is_same(walk, fd, dir)) {
		close_fd(walk, fd);
		return -ESTALE;
	}
	adopt(walk, dir, (int)fd);
	return (int)fd;
}

void tl_dir_leave(struct tl_walk *walk, struct dir *dir)
{
	struct dir *parent = dir->parent;
	long fd;

	if (!parent || parent->fd >= 0 || dir->fd < 0 || parent->at == parent->end)
		return;
	fd = open_at(walk, dir->fd, "..", AGAIN, dir);
	if (fd < 0)
		return;
	if (is_same(walk, fd, parent))
		adopt(walk, parent, (int)fd);
	else
		close_fd(walk, fd);
}
