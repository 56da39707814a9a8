// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * The entries of one directory with their attributes. It owns how they are read: by requests for
 * many at once (TL_NR_SCANDIR), or by getdents64(2) and a statx(2) for each name, with the same
 * entries in the same order.
 *
 * Both ways go on from the position of the open directory. So when the module answers that it does
 * not make compound calls for this thread, plain calls continue where it has stopped.
 */
#include "walk_state.h"
#include "../internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define SCAN_BYTES 65536u	/* of entries that one request may write */
/* For the request behind it, which mostly only sees the end. */
#define PROBE_BYTES ((TL_SCAN_ENTRY_MAX + 7) & ~7u)
#define NAMES_BYTES 16384u	/* of names that one getdents64(2) may write */

#define STATX_FLAGS (AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT)

/* struct linux_dirent64 of getdents64(2). */
struct name {
	uint64_t inode;
	int64_t offset;
	uint16_t bytes;
	uint8_t type;
	char name[];
};

int tl_arena_reserve(struct arena *arena, size_t bytes)
{
	size_t size = 2 * arena->size;
	char *grown;

	if (arena->size - arena->used >= bytes)
		return 0;
	if (size < arena->used + bytes)
		size = arena->used + bytes;
	grown = tl_heap_resize(arena->bytes, size, 1);
	if (!grown)
		return -ENOMEM;
	arena->bytes = grown;
	arena->size = size;
	return 0;
}

/* ---- Plain calls --------------------------------------------------------------------------- */

static bool is_dots(const char *name)
{
	return name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2]));
}

static void set_attributes(struct tl_scan_entry *entry, const struct statx *x)
{
	entry->mask = x->stx_mask;
	entry->blksize = x->stx_blksize;
	entry->attributes = x->stx_attributes;
	entry->attributes_mask = x->stx_attributes_mask;
	entry->nlink = x->stx_nlink;
	entry->uid = x->stx_uid;
	entry->gid = x->stx_gid;
	entry->mode = x->stx_mode;
	entry->ino = x->stx_ino;
	entry->bytes = x->stx_size;
	entry->blocks = x->stx_blocks;
	entry->atime_sec = x->stx_atime.tv_sec;
	entry->btime_sec = x->stx_btime.tv_sec;
	entry->ctime_sec = x->stx_ctime.tv_sec;
	entry->mtime_sec = x->stx_mtime.tv_sec;
	entry->atime_nsec = x->stx_atime.tv_nsec;
	entry->btime_nsec = x->stx_btime.tv_nsec;
	entry->ctime_nsec = x->stx_ctime.tv_nsec;
	entry->mtime_nsec = x->stx_mtime.tv_nsec;
	entry->rdev_major = x->stx_rdev_major;
	entry->rdev_minor = x->stx_rdev_minor;
	entry->dev_major = x->stx_dev_major;
	entry->dev_minor = x->stx_dev_minor;
	entry->mnt_id = x->stx_mnt_id;
}

int tl_scan_attributes(struct tl_scan *scan, int dirfd, const char *path, int flags,
		       struct tl_scan_entry *entry)
{
	struct statx x;
	long error = plain_call(scan, SYS_statx, (uint64_t)dirfd, (uintptr_t)path, (uint64_t)flags,
				scan->mask, (uintptr_t)&x);

	if (!error) {
		set_attributes(entry, &x);
		entry->error = 0;
	}
	return (int)error;
}

static int append_plain(struct tl_scan *scan, int fd, const struct name *name,
			struct arena *arena)
{
	size_t name_bytes = strlen(name->name);
	size_t bytes = (sizeof(struct tl_scan_entry) + name_bytes + 8) & ~(size_t)7;
	struct tl_scan_entry *entry;
	int error;

	if (tl_arena_reserve(arena, bytes))
		return -ENOMEM;
	entry = (void *)(arena->bytes + arena->used);
	arena->used += bytes;
	/* The name's last word first: zeros stay behind the name. */
	memset((char *)entry + bytes - 8, 0, 8);
	memcpy(entry + 1, name->name, name_bytes);
	entry->size = (uint16_t)bytes;
	entry->name_at = sizeof(*entry);
	entry->name_bytes = (uint16_t)name_bytes;
	entry->d_ino = name->inode;
	entry->d_off = name->offset;
	error = tl_scan_attributes(scan, fd, name->name, STATX_FLAGS, entry);
	if (error) {
		memset(&entry->mask, 0, sizeof(*entry) - offsetof(struct tl_scan_entry, mask));
		entry->error = (int16_t)error;
	}
	entry->type = name->type;
	entry->reserved = 0;
	return 0;
}

static int read_plain(struct tl_scan *scan, int fd, struct arena *arena, bool *ended)
{
	long bytes;

	if (!scan->names)
		scan->names = tl_heap_resize(NULL, NAMES_BYTES, 1);
	if (!scan->names)
		return -ENOMEM;
	bytes = plain_call(scan, SYS_getdents64, (uint64_t)fd, (uintptr_t)scan->names, NAMES_BYTES,
			   0, 0);
	*ended = !bytes;
	for (long at = 0; at < bytes;) {
		const struct name *name = (const void *)(scan->names + at);

		at += name->bytes;
		if (!is_dots(name->name) && append_plain(scan, fd, name, arena))
			return -ENOMEM;
	}
	return bytes < 0 ? (int)bytes : 0;
}

/* ---- Compound calls ------------------------------------------------------------------------ */

/* A signal came before the module looked for the attributes of these. */
static void complete_interrupted(struct tl_scan *scan, int fd, char *bytes, int64_t n)
{
	for (int64_t at = 0; at < n;) {
		struct tl_scan_entry *entry = (void *)(bytes + at);

		if (entry->error == -EINTR)
			entry->error = (int16_t)tl_scan_attributes(scan, fd, tl_scan_name(entry),
								   STATX_FLAGS, entry);
		at += entry->size;
	}
}

/* Makes two requests of one crossing. The bytes of each, or -errno. */
static int request(struct tl_scan *scan, int fd, char *bytes, int64_t *first, int64_t *second)
{
	int slots[2], error;

	slots[0] = TL_ADD(scan->batch, TL_NR_SCANDIR, fd, bytes, SCAN_BYTES, scan->mask,
			  TL_SCAN_NO_DOTS);
	slots[1] = TL_ADD(scan->batch, TL_NR_SCANDIR, fd, bytes + SCAN_BYTES, PROBE_BYTES,
			  scan->mask, TL_SCAN_NO_DOTS);
	if (slots[1] < 0)
		return slots[1];
	error = tl_batch_flush_all(scan->batch);
	if (error < 0)
		return error;
	*first = tl_batch_result(scan->batch, (unsigned int)slots[0]);
	*second = tl_batch_result(scan->batch, (unsigned int)slots[1]);
	return 0;
}

/* Plain calls from now on. error: of the flush, or 0 where the request was refused. */
static void give_up_module(struct tl_scan *scan, int error)
{
	const char *refusal = tl_batch_reason(scan->batch);

	scan->backend = TL_BACKEND_PLAIN;
	if (refusal)
		scan->reason = refusal;
	else
		scan->reason = error ? "the program has closed the library's descriptor" :
				       "this kernel offers no compound calls";
}

static int read_some(struct tl_scan *scan, int fd, struct arena *arena, bool *ended)
{
	int64_t first, second;
	char *bytes;
	int error;

	if (scan->backend == TL_BACKEND_PLAIN)
		return read_plain(scan, fd, arena, ended);
	if (tl_arena_reserve(arena, SCAN_BYTES + PROBE_BYTES))
		return -ENOMEM;
	bytes = arena->bytes + arena->used;
	error = request(scan, fd, bytes, &first, &second);
	/* -ENOSYS: the kernel lacks the call, or somebody watches this thread's calls. */
	if (error || first == -ENOSYS) {
		give_up_module(scan, error);
		return read_plain(scan, fd, arena, ended);
	}
	scan->requests += 2;
	scan->flushes++;
	if (first > 0) {
		complete_interrupted(scan, fd, bytes, first);
		arena->used += (size_t)first;
	}
	if (second > 0) {
		complete_interrupted(scan, fd, bytes + SCAN_BYTES, second);
		memmove(arena->bytes + arena->used, bytes + SCAN_BYTES, (size_t)second);
		arena->used += (size_t)second;
	}
	*ended = !second;
	/* An error of the second request comes again, if it lasts. */
	return first < 0 && first != -EINTR ? (int)first : 0;
}

int tl_scan_read(struct tl_scan *scan, int fd, struct arena *arena, bool *ended)
{
	int error = read_some(scan, fd, arena, ended);

	/* The directory was removed while it was open: readdir(3) finds its end as well. */
	if (error != -ENOENT)
		return error;
	*ended = true;
	return 0;
}

/* ---- One directory ------------------------------------------------------------------------- */

int tl_scan_create(struct tl_scan **out, unsigned int mask, unsigned int flags)
{
	struct tl_scan *scan = tl_heap_resize(NULL, 1, sizeof(*scan));
	int error;

	if (!scan)
		return -ENOMEM;
	*scan = (struct tl_scan){ .fd = -1, .mask = mask ? mask & TL_SCAN_MASK :
						     STATX_BASIC_STATS };
	error = tl_batch_create(&scan->batch, 2, flags);
	if (error) {
		free(scan);
		return error;
	}
	scan->backend = tl_batch_backend(scan->batch);
	scan->reason = tl_batch_reason(scan->batch);
	*out = scan;
	return 0;
}

void tl_scan_destroy(struct tl_scan *scan)
{
	if (!scan)
		return;
	tl_scan_close(scan);
	tl_batch_destroy(scan->batch);
	free(scan->names);
	free(scan->arena.bytes);
	free(scan);
}

int tl_scan_open(struct tl_scan *scan, int dirfd, const char *path)
{
	long fd;

	tl_scan_close(scan);
	fd = plain_call(scan, SYS_openat, (uint64_t)dirfd, (uintptr_t)path,
			O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0, 0);
	if (fd < 0)
		return (int)fd;
	scan->fd = (int)fd;
	scan->ended = false;
	scan->error = 0;
	scan->at = scan->arena.used = 0;
	return 0;
}

void tl_scan_close(struct tl_scan *scan)
{
	if (scan->fd >= 0)
		plain_call(scan, SYS_close, (uint64_t)scan->fd, 0, 0, 0, 0);
	scan->fd = -1;
}

int tl_scan_next(struct tl_scan *scan, const struct tl_scan_entry **entry)
{
	int error;

	if (scan->fd < 0)
		return -EBADF;
	while (scan->at == scan->arena.used) {
		error = scan->error;
		scan->error = 0;
		if (error || scan->ended)
			return error;
		scan->at = scan->arena.used = 0;
		scan->error = tl_scan_read(scan, scan->fd, &scan->arena, &scan->ended);
	}
	*entry = (const void *)(scan->arena.bytes + scan->at);
	scan->at += (*entry)->size;
	return 1;
}

int tl_scan_fd(const struct tl_scan *scan)
{
	return scan->fd;
}

enum tl_backend tl_scan_backend(const struct tl_scan *scan)
{
	return scan->backend;
}
