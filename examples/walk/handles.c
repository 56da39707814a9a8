// SPDX-License-Identifier: MIT
/*
 * Limits how many directories are open at a time, and chooses which.
 *
 * A directory is opened by its name, relative to its parent's handle, so a parent stays open while
 * subdirectories wait for it ("idle"). When handles run short, the one that has been idle longest
 * is closed: the walk is depth first, so it is needed last. It is opened again from a child of its
 * own by "..", or along the path; either way it must be the same device and inode as before.
 * This file owns the descriptors. It does not know which data is read through them.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "walk.h"

/* Descriptors that are not ours to use: the standard ones, the library's, the scheduler's. */
#define HANDLES_OTHERS 8u

/* A base for openat is enough when a directory is opened again: all of it has been read. */
#define AGAIN (O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

void handles_init(struct walk *walk)
{
	struct rlimit limit;
	rlim_t max = HANDLES_MAX;

	/* Half of what is left: handles given up are open until their close leaves the queue. */
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < 2 * max + HANDLES_OTHERS)
		max = limit.rlim_cur > HANDLES_OTHERS ? (limit.rlim_cur - HANDLES_OTHERS) / 2 : 0;
	walk->handles_max = max > 2 ? (uint32_t)max : 2;
	walk->window = walk->handles_max / 2 < WINDOW_DIRS ? walk->handles_max / 2 : WINDOW_DIRS;
}

static void idle_add(struct dir *dir)
{
	struct walk *walk = dir->walk;

	dir->newer = NULL;
	dir->older = walk->newest;
	*(dir->older ? &dir->older->newer : &walk->oldest) = dir;
	walk->newest = dir;
}

static void idle_remove(struct dir *dir)
{
	struct walk *walk = dir->walk;

	*(dir->older ? &dir->older->newer : &walk->oldest) = dir->newer;
	*(dir->newer ? &dir->newer->older : &walk->newest) = dir->older;
	dir->older = dir->newer = NULL;
}

/* All of it has been read, but subdirectories wait for its handle. */
void handle_idle(struct dir *dir)
{
	idle_add(dir);
}

static bool same_dir(int fd, const struct dir *dir)
{
	struct stat now;

	return fstat(fd, &now) == 0 && now.st_dev == dir->dev && now.st_ino == dir->ino;
}

/* openat, checked to be `dir`; -errno. Plain calls: rare, and the result is needed at once. */
static int open_again(int at, const char *path, const struct dir *dir)
{
	int fd = openat(at, path, dir->parent ? AGAIN : AGAIN & ~O_NOFOLLOW);

	if (fd < 0)
		return -errno;
	if (same_dir(fd, dir))
		return fd;
	close(fd);
	return -ENOENT;
}

/* Put the name of `dir` in front of the path that begins at path[begin]; the new begin. */
static size_t path_prepend(char *path, size_t begin, const struct dir *dir)
{
	size_t length = strlen(dir->name);

	if (path[begin])
		path[--begin] = '/';
	return (size_t)((char *)memcpy(path + begin - length, dir->name, length) - path);
}

/*
 * Open `dir` along the path from its nearest open ancestor (or from the start), in hops that are
 * as long as the kernel takes. The descriptor, or -errno.
 */
static int reopen_by_path(struct dir *dir)
{
	const struct dir *from = NULL;	/* `base` is open on it */
	int base = -1;

	while (from != dir) {
		const struct dir *target = dir, *up = dir;
		char path[PATH_MAX];
		size_t begin = sizeof(path) - 1;
		int fd;

		path[begin] = '\0';
		for (; up->parent && up != from && up->fd < 0; up = up->parent) {
			if (begin < NAME_MAX + 1) {
				target = up;
				begin = sizeof(path) - 1;
			}
			begin = path_prepend(path, begin, up);
		}
		if (up == from)
			fd = open_again(base, path + begin, target);
		else if (up->fd >= 0)
			fd = open_again(up->fd, path + begin, target);
		else
			fd = open_again(AT_FDCWD, (target = up)->name, up);
		if (base >= 0)
			close(base);
		if (fd < 0)
			return fd;
		base = fd;
		from = target;
	}
	return base;
}

/* A handle that was given up has really been closed: there may be room again. */
static void have_closed(struct tl_thread *self, void *arg)
{
	struct walk *walk = arg;

	(void)self;
	walk->closing--;
	visit_more(walk);
}

static bool nothing_will_end(const struct walk *walk)
{
	return !walk->under_way && !walk->closing;
}

/* Make room for one more handle without giving up `keep`. False: wait for something to end. */
static bool make_room(struct walk *walk, const struct dir *keep)
{
	struct dir *victim = walk->oldest;

	if (walk->handles < walk->handles_max)
		return true;
	if (victim == keep && victim)
		victim = victim->newer;
	if (!victim)
		return nothing_will_end(walk);
	idle_remove(victim);
	/* Queued behind every openat that uses it, and before the one that needs the room. */
	call(walk, thread(walk, have_closed, walk, 1), NULL, SYS_close, victim->fd, 0, 0, 0);
	walk->closing++;
	walk->handles--;
	victim->fd = -1;
	return true;
}

/*
 * Reserve a handle for `dir` and say relative to which descriptor its name is. 0; -EAGAIN: wait,
 * nothing is reserved; another -errno: its parent cannot be opened again.
 */
int handle_reserve(struct dir *dir, int *at)
{
	struct walk *walk = dir->walk;
	struct dir *parent = dir->parent;
	int fd = 0;

	*at = AT_FDCWD;
	if (parent && parent->fd < 0) {
		if (!make_room(walk, NULL))
			return -EAGAIN;
		fd = reopen_by_path(parent);
		if ((fd == -EMFILE || fd == -ENFILE) && !nothing_will_end(walk))
			return -EAGAIN;
		if (fd >= 0) {
			parent->fd = fd;
			walk->handles++;
			idle_add(parent);
		}
	}
	if (!make_room(walk, parent))
		return -EAGAIN;
	walk->handles++;
	if (fd < 0)
		return fd;
	if (parent)
		*at = parent->fd;
	return 0;
}

/* The openat that a handle was reserved for has failed. */
void handle_unused(struct walk *walk)
{
	walk->handles--;
}

/* Nobody needs this handle any more. */
void handle_close(struct dir *dir)
{
	struct dir *parent = dir->parent;
	int fd;

	if (dir->fd < 0)
		return;
	if (parent && parent->fd < 0 && parent->waiting) {
		fd = open_again(dir->fd, "..", parent);
		if (fd >= 0) {
			parent->fd = fd;
			dir->walk->handles++;
			idle_add(parent);
		}
	}
	if (dir->ended && (dir->older || dir->newer || dir->walk->oldest == dir))
		idle_remove(dir);
	call(dir->walk, NULL, NULL, SYS_close, dir->fd, 0, 0, 0);
	dir->walk->handles--;
	dir->fd = -1;
}

/*
 * Opening `dir` failed with `error`. True where that was for want of descriptors and fewer of ours
 * would help: the bound is lowered, and the same may be tried again.
 */
bool handles_shrink(struct dir *dir, int error)
{
	struct walk *walk = dir->walk;
	struct dir *other = walk->oldest;

	if (error != EMFILE && error != ENFILE)
		return false;
	if (other && other == dir->parent)
		other = other->newer;
	if (nothing_will_end(walk) && !other)
		return false;
	walk->handles_max = walk->handles ? walk->handles : 1;
	return true;
}
