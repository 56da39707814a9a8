// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * A walk through a tree. It owns the order in which entries are returned, and their path.
 *
 * A directory is read whole before the first of its entries is returned. Depth first the entries of
 * the directories on the current path lie one behind the other in one piece of memory, whose end
 * is given back when a directory is left. Breadth first those of one directory lie in it, and each
 * directory that waits has its own entry and its parents.
 */
#include "walk_state.h"
#include "../internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define OPEN_DEFAULT 64u
#define OPEN_MIN 3u
#define ORDERS (TL_WALK_BY_NAME | TL_WALK_BY_INODE)
#define FLAGS (TL_WALK_BREADTH_FIRST | TL_WALK_LEAVE | TL_WALK_ONE_DEVICE | TL_WALK_FOLLOW_ROOT | \
	       TL_WALK_FOLLOW | ORDERS)

/* ---- The path ------------------------------------------------------------------------------ */

/* Appends a name to the first `bytes` bytes of the path. Returns where it begins, or 0. */
static size_t path_append(struct tl_walk *walk, size_t bytes, const char *name, size_t name_bytes)
{
	struct arena *path = &walk->path;

	path->used = bytes;
	if (tl_arena_reserve(path, name_bytes + 2))
		return 0;
	if (bytes && path->bytes[bytes - 1] != '/')
		path->bytes[bytes++] = '/';
	memcpy(path->bytes + bytes, name, name_bytes);
	path->used = bytes + name_bytes;
	path->bytes[path->used] = '\0';
	return bytes;
}

/* Makes the path that of a directory, breadth first. */
static int path_set(struct tl_walk *walk, const struct dir *dir)
{
	struct arena *path = &walk->path;
	size_t end = dir->path_bytes;

	path->used = 0;
	if (tl_arena_reserve(path, end + 1))
		return -ENOMEM;
	path->used = end;
	path->bytes[end] = '\0';
	for (; dir->parent; dir = dir->parent) {
		end = dir->path_bytes - dir->entry.name_bytes;
		memcpy(path->bytes + end, tl_scan_name(&dir->entry), dir->entry.name_bytes);
		if (dir->parent->path_bytes != end)
			path->bytes[dir->parent->path_bytes] = '/';
	}
	return 0;
}

/* ---- Entering a directory ------------------------------------------------------------------ */

static int by_name(const void *a, const void *b)
{
	return strcmp(tl_scan_name(*(const struct tl_scan_entry *const *)a),
		      tl_scan_name(*(const struct tl_scan_entry *const *)b));
}

static int by_inode(const void *a, const void *b)
{
	uint64_t one = (*(const struct tl_scan_entry *const *)a)->d_ino;
	uint64_t other = (*(const struct tl_scan_entry *const *)b)->d_ino;

	return one < other ? -1 : one > other;
}

/* Appends an index of the directory's entries, in order, which is what is walked along then. */
static int sort(struct tl_walk *walk, struct dir *dir)
{
	struct arena *entries = &walk->entries;
	uint64_t *index;
	size_t n = 0;

	for (size_t at = dir->at; at < dir->end; n++)
		at += ((struct tl_scan_entry *)(void *)(entries->bytes + at))->size;
	if (tl_arena_reserve(entries, n * sizeof(*index)))
		return -ENOMEM;
	index = (void *)(entries->bytes + dir->end);
	for (size_t at = dir->at; at < dir->end;) {
		*index = (uintptr_t)(entries->bytes + at);
		at += ((struct tl_scan_entry *)(uintptr_t)*index++)->size;
	}
	index -= n;
	qsort(index, n, sizeof(*index), walk->flags & TL_WALK_BY_NAME ? by_name : by_inode);
	for (size_t i = 0; i < n; i++)
		index[i] -= (uintptr_t)entries->bytes;
	dir->at = dir->end;
	dir->end = entries->used += n * sizeof(*index);
	return 0;
}

static bool is_inside(const struct dir *dir, uint64_t device, uint64_t inode)
{
	while (dir && (dir->inode != inode || dir->device != device))
		dir = dir->parent;
	return dir;
}

static int read_whole(struct tl_walk *walk, struct dir *dir)
{
	bool ended = false;
	int error = 0;

	while (!ended && !error)
		error = tl_scan_read(walk->scan, dir->fd, &walk->entries, &ended);
	dir->end = walk->entries.used;
	if (walk->flags & ORDERS && dir->end != dir->at && sort(walk, dir)) {
		dir->at = dir->end;
		return -ENOMEM;
	}
	return error;
}

/* Begins with a directory. Its error is returned behind the entries that could be read. */
static void enter(struct tl_walk *walk, struct dir *dir)
{
	uint64_t device = dir->device, inode = dir->inode;

	walk->dir = dir;
	dir->begin = dir->at = dir->end = walk->entries.used;
	dir->error = tl_dir_open(walk, dir);
	if (dir->error)
		return;
	/* Opening it may have mounted something there, or it was replaced. */
	if ((device != dir->device || inode != dir->inode) &&
	    is_inside(dir->parent, dir->device, dir->inode))
		dir->error = -ELOOP;
	else
		dir->error = read_whole(walk, dir);
}

/* ---- Entries ------------------------------------------------------------------------------- */

/* Returns a directory itself once more. */
static int return_dir(struct tl_walk *walk, const struct dir *dir, enum tl_walk_kind kind,
		      int error)
{
	struct tl_walk_entry *entry = &walk->entry;

	walk->path.used = dir->path_bytes;
	walk->path.bytes[dir->path_bytes] = '\0';
	entry->kind = kind;
	entry->error = error;
	entry->depth = dir->depth;
	entry->path = walk->path.bytes;
	entry->path_bytes = dir->path_bytes;
	entry->name_bytes = dir->parent ? dir->entry.name_bytes : (uint32_t)dir->path_bytes;
	entry->name = entry->path + entry->path_bytes - entry->name_bytes;
	entry->attributes = &dir->entry;
	return 1;
}

/* A link that leads nowhere stays one; where its directory is lost, it has the error. */
static void follow_link(struct tl_walk *walk, struct tl_scan_entry *entry)
{
	int error = tl_dir_fd(walk, walk->dir);
	bool lost = error < 0;

	if (!lost) {
		error = tl_scan_attributes(walk->scan, error, tl_scan_name(entry), 0, entry);
		lost = error == -EBADF;
	}
	if (lost)
		entry->error = (int16_t)error;
}

/* Is the entry that is being returned a directory to enter? Then it is pending. */
static int prepare_to_enter(struct tl_walk *walk, const struct tl_scan_entry *entry)
{
	uint64_t device = tl_device_of(entry->dev_major, entry->dev_minor);

	if (is_inside(walk->dir, device, entry->ino)) {
		walk->entry.kind = TL_WALK_CYCLE;
		return 0;
	}
	if (walk->flags & TL_WALK_ONE_DEVICE && device != walk->root->device)
		return 0;
	walk->pending = tl_dir_create(walk->dir, entry, walk->entry.path_bytes);
	return walk->pending ? 0 : -ENOMEM;
}

static int return_next(struct tl_walk *walk)
{
	struct dir *dir = walk->dir;
	char *entries = walk->entries.bytes;
	struct tl_walk_entry *out = &walk->entry;
	struct tl_scan_entry *entry;
	size_t begin;

	if (walk->flags & ORDERS) {
		entry = (void *)(entries + *(uint64_t *)(void *)(entries + dir->at));
		dir->at += sizeof(uint64_t);
	} else {
		entry = (void *)(entries + dir->at);
		dir->at += entry->size;
	}
	begin = path_append(walk, dir->path_bytes, tl_scan_name(entry), entry->name_bytes);
	if (!begin)
		return -ENOMEM;
	if (walk->flags & TL_WALK_FOLLOW && S_ISLNK(entry->mode))
		follow_link(walk, entry);
	out->kind = TL_WALK_ENTRY;
	out->error = entry->error;
	out->depth = dir->depth + 1;
	out->path = walk->path.bytes;
	out->path_bytes = walk->path.used;
	out->name = walk->path.bytes + begin;
	out->name_bytes = entry->name_bytes;
	out->attributes = entry;
	if (S_ISDIR(entry->mode) && prepare_to_enter(walk, entry))
		return -ENOMEM;
	return 1;
}

/* ---- The walk ------------------------------------------------------------------------------ */

static void leave(struct tl_walk *walk)
{
	struct dir *dir = walk->dir;

	walk->entries.used = dir->begin;
	walk->dir = NULL;
	if (!(walk->flags & TL_WALK_BREADTH_FIRST)) {
		tl_dir_leave(walk, dir);
		walk->dir = dir->parent;
	}
	tl_dir_release(walk, dir);
}

static void queue(struct tl_walk *walk, struct dir *dir)
{
	*(walk->first ? &walk->last->next : &walk->first) = dir;
	walk->last = dir;
}

/* Goes on with the directory that was returned last, or with the one that has waited longest. */
static int go_on(struct tl_walk *walk)
{
	struct dir *dir = walk->pending;

	walk->pending = NULL;
	if (dir && walk->flags & TL_WALK_BREADTH_FIRST)
		queue(walk, dir);
	else if (dir)
		enter(walk, dir);
	if (walk->dir || !walk->first)
		return 0;
	dir = walk->first;
	if (path_set(walk, dir))
		return -ENOMEM;
	walk->first = dir->next;
	enter(walk, dir);
	return 0;
}

static int next(struct tl_walk *walk)
{
	if (!walk->entry.path)
		return return_dir(walk, walk->root, TL_WALK_ENTRY, 0);
	for (;;) {
		struct dir *dir;

		if (go_on(walk))
			return -ENOMEM;
		dir = walk->dir;
		if (!dir)
			return 0;
		if (dir->at != dir->end)
			return return_next(walk);
		if (dir->error) {
			int error = dir->error;

			dir->error = 0;
			return return_dir(walk, dir, TL_WALK_UNREADABLE, error);
		}
		if (walk->flags & TL_WALK_LEAVE && !dir->left) {
			dir->left = true;
			return return_dir(walk, dir, TL_WALK_LEFT, 0);
		}
		leave(walk);
	}
}

int tl_walk_next(struct tl_walk *walk, const struct tl_walk_entry **entry)
{
	int status = next(walk);

	*entry = &walk->entry;
	walk->returned += status == 1;
	return status;
}

void tl_walk_skip(struct tl_walk *walk)
{
	if (walk->pending)
		tl_dir_release(walk, walk->pending);
	walk->pending = NULL;
}

int tl_walk_fd(struct tl_walk *walk)
{
	struct dir *dir = walk->dir;

	if (!walk->entry.depth)
		return walk->dirfd;
	return tl_dir_fd(walk, dir->depth == walk->entry.depth ? dir->parent : dir);
}

enum tl_backend tl_walk_backend(const struct tl_walk *walk)
{
	return tl_scan_backend(walk->scan);
}

const char *tl_walk_reason(const struct tl_walk *walk)
{
	return walk->scan->reason;
}

int tl_walk_get_stats(const struct tl_walk *walk, struct tl_walk_stats *stats)
{
	const struct tl_scan *scan = walk->scan;
	struct tl_walk_stats own = {
		.size = stats->size < sizeof(own) ? stats->size : sizeof(own),
		.entries = walk->returned,
		.directories = walk->directories,
		.requests = scan->requests,
		.calls = scan->calls,
		.crossings = scan->calls + scan->flushes,
	};

	if (stats->size < sizeof(stats->size))
		return -EINVAL;
	memcpy(stats, &own, own.size);
	return 0;
}

/* ---- Creation and end ---------------------------------------------------------------------- */

/* The root, with its attributes, is what is to be entered first. */
static int create_root(struct tl_walk *walk, const char *path)
{
	struct tl_scan_entry *entry, none[2] = { { 0 } };
	unsigned int follow = TL_WALK_FOLLOW | TL_WALK_FOLLOW_ROOT;
	int error;

	entry = none;
	entry->size = sizeof(*entry) + 8;
	entry->name_at = sizeof(*entry);
	error = tl_scan_attributes(walk->scan, walk->dirfd, path,
				   walk->flags & follow ? 0 : AT_SYMLINK_NOFOLLOW, entry);
	if (error == -ENOENT && walk->flags & TL_WALK_FOLLOW)
		error = tl_scan_attributes(walk->scan, walk->dirfd, path, AT_SYMLINK_NOFOLLOW,
					   entry);
	if (error)
		return error;
	if (tl_arena_reserve(&walk->path, strlen(path) + 2))
		return -ENOMEM;
	path_append(walk, 0, path, strlen(path));
	walk->root = tl_dir_create(NULL, entry, strlen(path));
	if (!walk->root)
		return -ENOMEM;
	if (S_ISDIR(entry->mode)) {
		walk->pending = walk->root;
		walk->root->references++;
	}
	return 0;
}

int tl_walk_create(struct tl_walk **out, int dirfd, const char *path, unsigned int mask,
		   unsigned int flags, unsigned int descriptors)
{
	struct tl_walk *walk;
	int error;

	if (flags & ~(FLAGS | TL_PLAIN | TL_MODULE) || (flags & ORDERS) == ORDERS ||
	    (flags & TL_WALK_LEAVE && flags & TL_WALK_BREADTH_FIRST))
		return -EINVAL;
	walk = tl_heap_resize(NULL, 1, sizeof(*walk));
	if (!walk)
		return -ENOMEM;
	if (!descriptors)
		descriptors = OPEN_DEFAULT;
	*walk = (struct tl_walk){
		.flags = flags,
		.dirfd = dirfd,
		.open_max = (descriptors < OPEN_MIN ? OPEN_MIN : descriptors) - 1,
	};
	mask = (mask ? mask : STATX_BASIC_STATS) | STATX_TYPE | STATX_MODE | STATX_INO;
	error = tl_scan_create(&walk->scan, mask, flags & (TL_PLAIN | TL_MODULE));
	if (!error)
		error = create_root(walk, path);
	if (error)
		tl_walk_destroy(walk);
	else
		*out = walk;
	return error;
}

void tl_walk_destroy(struct tl_walk *walk)
{
	if (!walk)
		return;
	tl_walk_skip(walk);
	for (struct dir *dir = walk->dir, *up; dir; dir = up) {
		up = walk->flags & TL_WALK_BREADTH_FIRST ? NULL : dir->parent;
		tl_dir_release(walk, dir);
	}
	while (walk->first) {
		struct dir *dir = walk->first;

		walk->first = dir->next;
		tl_dir_release(walk, dir);
	}
	if (walk->root)
		tl_dir_release(walk, walk->root);
	tl_scan_destroy(walk->scan);
	free(walk->entries.bytes);
	free(walk->path.bytes);
	free(walk);
}
