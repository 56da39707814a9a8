// SPDX-License-Identifier: MIT
/*
 * Opens, reads and examines directories by wrapped calls.
 *
 * Each directory is a chain of fine-grained threads, one for each phase behind a wait:
 *   opened         queues the first getdents64
 *   have_read      queues newfstatat for each entry, and the next getdents64 with them
 *   have_examined  adds up, keeps what print.c needs, puts subdirectories on the stack
 * WINDOW_DIRS such chains run at once, and their calls share crossings. This file owns the stack,
 * the pool of chunks and the records of entries. It does not print and does not sort: records stay
 * in the order of the directory, and print.c takes them from there.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

#include "walk.h"

#define OPEN_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)
#define CIFS_MAGIC 0xFF534D42

/* ---- Calls and threads, for a program that ends where memory does ---------------------------- */

struct tl_thread *thread(struct walk *walk, tl_entry entry, void *arg, unsigned int syncs)
{
	struct tl_thread *created;

	if (tl_thread_create(walk->sched, &created, entry, arg, syncs))
		die("memory exhausted", 0);
	return created;
}

void call(struct walk *walk, struct tl_thread *then, int64_t *result, uint32_t nr, uint64_t a0,
	  uint64_t a1, uint64_t a2, uint64_t a3)
{
	int error = tl_call(walk->sched, then, result, nr, a0, a1, a2, a3, 0, 0);

	if (error)
		die(error == -ENOMEM ? "memory exhausted" : "cannot queue a call", -error);
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static struct block *block_create(size_t bytes)
{
	struct block *block = must(malloc(sizeof(*block) + bytes));

	block->next = NULL;
	block->used = 0;
	block->is_index = false;
	return block;
}

static struct chunk *chunk_take(struct walk *walk)
{
	struct chunk *chunk = walk->pool;

	if (chunk) {
		walk->pool = chunk->next;
	} else {
		chunk = must(malloc(sizeof(*chunk)));
		chunk->block = NULL;
	}
	if (!chunk->block)
		chunk->block = block_create(CHUNK_BYTES);
	return chunk;
}

static void chunk_give(struct walk *walk, struct chunk *chunk)
{
	chunk->next = walk->pool;
	walk->pool = chunk;
}

struct dir *dir_create(struct walk *walk, struct dir *parent, const struct stat *stat)
{
	struct dir *dir = must(calloc(1, sizeof(*dir)));

	dir->walk = walk;
	dir->parent = parent;
	dir->dev = stat->st_dev;
	dir->ino = stat->st_ino;
	dir->bytes = (uint64_t)stat->st_blocks * 512;
	dir->group_end = &dir->group;
	dir->records_end = &dir->records;
	dir->fd = -1;
	return dir;
}

/* ---- What an entry is ------------------------------------------------------------------------ */

static struct record *record_at(char *data)
{
	return (struct record *)data;
}

static bool is_dots(const char *name)
{
	return name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2]));
}

/* Must this entry be examined, or does its type say enough? `type` is d_type. */
static bool wants_stat(const struct walk *walk, uint8_t type)
{
	return !walk->options.find || type == DT_DIR || type == DT_UNKNOWN;
}

/*
 * The ancestor of an entry of `dir` that the entry is itself. Only a mount makes that possible,
 * and only where one is do the inode of the entry and of what is there differ, or the devices.
 */
static struct dir *loop(struct dir *dir, const struct record *record, const struct stat *stat)
{
	if (stat->st_dev == dir->dev && stat->st_ino == record->ino)
		return NULL;
	while (dir && (stat->st_dev != dir->dev || stat->st_ino != dir->ino))
		dir = dir->parent;
	return dir;
}

/* The following set the record's kind and value and say whether print.c needs the record. */
static bool learn_dir(struct dir *dir, struct record *record, const struct stat *stat)
{
	const struct options *options = &dir->walk->options;
	struct dir *ancestor = loop(dir, record, stat);

	if (options->one_device && stat->st_dev != dir->walk->dev) {
		record->kind = KIND_FILE;
		return options->find;
	}
	if (ancestor) {
		record->kind = KIND_LOOP;
		record->dir = ancestor;
		return options->find;
	}
	record->kind = KIND_DIR;
	record->dir = dir_create(dir->walk, dir, stat);
	return true;
}

static bool learn_file(struct dir *dir, struct record *record, const struct stat *stat)
{
	const struct options *options = &dir->walk->options;
	uint64_t bytes = (uint64_t)stat->st_blocks * 512;

	if (options->one_device && stat->st_dev != dir->walk->dev)
		return false;
	if (stat->st_nlink > 1) {
		struct link *link = must(malloc(sizeof(*link)));

		*link = (struct link){ stat->st_dev, stat->st_ino, bytes };
		record->kind = KIND_LINK;
		record->link = link;
		return true;
	}
	dir->bytes += bytes;
	record->kind = KIND_FILE;
	record->bytes = bytes;
	return options->all;
}

static bool learn(struct dir *dir, struct record *record, const struct answer *answer)
{
	if (answer && answer->result < 0) {
		record->kind = KIND_ERROR;
		record->error = (int)-answer->result;
		return true;
	}
	if (answer && S_ISDIR(answer->stat.st_mode))
		return learn_dir(dir, record, &answer->stat);
	if (!dir->walk->options.find)
		return learn_file(dir, record, &answer->stat);
	record->kind = KIND_FILE;
	return true;
}

/* ---- Records that are kept, in groups -------------------------------------------------------- */

static int by_inode(const void *a, const void *b)
{
	const struct record *const *left = a, *const *right = b;

	return ((*left)->ino > (*right)->ino) - ((*left)->ino < (*right)->ino);
}

/* Is a long directory of this file system read in the order of inodes by du and find? */
static bool is_sorted(int fd)
{
	struct statfs fs;

	if (fstatfs(fd, &fs))
		return true;
	return fs.f_type != TMPFS_MAGIC && fs.f_type != NFS_SUPER_MAGIC &&
	       (uint32_t)fs.f_type != CIFS_MAGIC;
}

/* Put an index by inode before the group's blocks, which are then found through it only. */
static void group_sort(struct dir *dir)
{
	struct block *block, *index;
	struct record **slot;
	size_t count = 0;

	for (block = dir->group; block; block = block->next)
		for (size_t at = 0; at < block->used; at += record_at(block->data + at)->length)
			count++;
	index = block_create(count * sizeof(*slot));
	slot = (struct record **)index->data;
	for (block = dir->group; block; block = block->next) {
		for (size_t at = 0; at < block->used; at += record_at(block->data + at)->length)
			*slot++ = record_at(block->data + at);
		block->used = 0;
	}
	qsort(index->data, count, sizeof(*slot), by_inode);
	index->used = count * sizeof(*slot);
	index->is_index = true;
	index->next = dir->group;
	dir->group = index;
}

/* The group is complete: its order is known, print.c may have it. */
static void group_close(struct dir *dir)
{
	if (dir->entries > SORT_ENTRIES && dir->group && is_sorted(dir->fd))
		group_sort(dir);
	dir->entries = 0;
	if (!dir->group)
		return;
	*dir->records_end = dir->group;
	dir->records_end = dir->group_end;
	dir->group = NULL;
	dir->group_end = &dir->group;
}

/* Put the block's subdirectories on top of the stack, the first one topmost. */
static void adopt(struct dir *dir, struct block *block)
{
	struct dir *first = NULL, **end = &first;

	for (size_t at = 0; at < block->used; at += record_at(block->data + at)->length) {
		struct record *record = record_at(block->data + at);

		if (record->kind != KIND_DIR)
			continue;
		record->dir->name = record->name;
		*end = record->dir;
		end = &record->dir->below;
		dir->waiting++;
	}
	*end = dir->walk->stack;
	dir->walk->stack = first;
}

/* Keep the records in [from, to) of a chunk, by taking its block where most of that is used. */
static void keep(struct dir *dir, struct chunk *chunk, char *from, char *to, bool last)
{
	struct block *block = chunk->block;
	size_t bytes = (size_t)(to - from);

	if (!bytes)
		return;
	if (last && from == block->data && bytes > CHUNK_BYTES / 4) {
		chunk->block = NULL;
	} else {
		block = block_create(bytes);
		memcpy(block->data, from, bytes);
	}
	block->used = bytes;
	*dir->group_end = block;
	dir->group_end = &block->next;
	adopt(dir, block);
}

/* All answers about a chunk are there: learn, keep, forget. */
static void fold(struct dir *dir, struct chunk *chunk)
{
	char *from = chunk->block->data, *end = from + chunk->result;
	char *kept = from, *to = from;
	const struct answer *answer = chunk->answers;

	while (from < end) {
		struct record *record = record_at(from);
		uint16_t length = record->length;
		bool stat = wants_stat(dir->walk, record->kind);

		from += length;
		if (is_dots(record->name))
			continue;
		if (learn(dir, record, stat ? answer++ : NULL)) {
			if (to != (char *)record)
				memmove(to, record, length);
			to += length;
		}
		dir->partial = true;
		if (++dir->entries == GROUP_ENTRIES) {
			keep(dir, chunk, kept, to, false);
			kept = to;
			group_close(dir);
			print_more(dir->walk);
		}
	}
	keep(dir, chunk, kept, to, true);
}

/* ---- The chain of threads -------------------------------------------------------------------- */

static void end(struct dir *dir)
{
	struct walk *walk = dir->walk;

	group_close(dir);
	dir->ended = true;
	if (dir->fd >= 0 && dir->waiting)
		handle_idle(dir);
	else
		handle_close(dir);
	walk->under_way--;
	print_more(walk);	/* frees dir when all before it is printed */
	visit_more(walk);
}

static void queue_read(struct dir *dir, struct tl_thread *then)
{
	dir->reading = chunk_take(dir->walk);
	call(dir->walk, then, &dir->reading->result, SYS_getdents64, dir->fd,
	     (uintptr_t)dir->reading->block->data, CHUNK_BYTES, 0);
}

static uint32_t count_stats(const struct dir *dir, struct chunk *chunk)
{
	uint32_t count = 0;

	for (int64_t at = 0; at < chunk->result; ) {
		struct record *record = record_at(chunk->block->data + at);

		at += record->length;
		count += wants_stat(dir->walk, record->kind) && !is_dots(record->name);
	}
	return count;
}

static void queue_stats(struct dir *dir, struct chunk *chunk, struct tl_thread *then)
{
	struct answer *answer = chunk->answers;

	for (int64_t at = 0; at < chunk->result; ) {
		struct record *record = record_at(chunk->block->data + at);

		at += record->length;
		if (!wants_stat(dir->walk, record->kind) || is_dots(record->name))
			continue;
		call(dir->walk, then, &answer->result, SYS_newfstatat, dir->fd,
		     (uintptr_t)record->name, (uintptr_t)&answer->stat, AT_SYMLINK_NOFOLLOW);
		answer++;
	}
}

static void have_examined(struct tl_thread *self, void *arg);

static void have_read(struct tl_thread *self, void *arg)
{
	struct dir *dir = arg;
	struct chunk *chunk = dir->reading;
	struct tl_thread *then;

	(void)self;
	if (chunk->result <= 0) {
		/* A directory that was removed while it was open has ended, as readdir sees it. */
		if (chunk->result < 0 && chunk->result != -ENOENT)
			dir->error = (int)-chunk->result;
		chunk_give(dir->walk, chunk);
		end(dir);
		return;
	}
	then = thread(dir->walk, have_examined, dir, count_stats(dir, chunk) + 1);
	dir->examining = chunk;
	queue_stats(dir, chunk, then);
	queue_read(dir, then);
}

static void have_examined(struct tl_thread *self, void *arg)
{
	struct dir *dir = arg;
	struct chunk *chunk = dir->examining;

	fold(dir, chunk);
	chunk_give(dir->walk, chunk);
	visit_more(dir->walk);
	have_read(self, dir);
}

static void opened(struct tl_thread *self, void *arg)
{
	struct dir *dir = arg, *parent = dir->parent;
	struct walk *walk = dir->walk;

	(void)self;
	if (dir->opened < 0) {
		handle_unused(walk);
		walk->under_way--;
		if (handles_shrink(dir, (int)-dir->opened)) {
			dir->below = walk->stack;
			walk->stack = dir;
			visit_more(walk);
			return;
		}
		walk->under_way++;
		dir->error = (int)-dir->opened;
	} else {
		dir->fd = (int)dir->opened;
	}
	if (parent && --parent->waiting == 0 && parent->ended)
		handle_close(parent);
	if (dir->error)
		end(dir);
	else
		queue_read(dir, thread(walk, have_read, dir, 1));
}

/* Begin with a directory. False: it must wait for a handle. */
static bool start(struct dir *dir)
{
	struct walk *walk = dir->walk;
	int at, error = handle_reserve(dir, &at);

	if (error == -EAGAIN)
		return false;
	walk->under_way++;
	dir->opened = error;
	if (error)
		thread(walk, opened, dir, 0);
	else
		call(walk, thread(walk, opened, dir, 1), &dir->opened, SYS_openat, at,
		     (uintptr_t)dir->name, OPEN_FLAGS, 0);
	return true;
}

/* Begin with as many waiting directories as the window has room for. */
void visit_more(struct walk *walk)
{
	while (walk->stack && walk->under_way < walk->window) {
		struct dir *dir = walk->stack;

		walk->stack = dir->below;
		if (!start(dir)) {
			dir->below = walk->stack;
			walk->stack = dir;
			return;
		}
	}
}

void visit(struct walk *walk, struct dir *root)
{
	int error;

	walk->stack = root;
	visit_more(walk);
	error = tl_sched_run(walk->sched);
	if (error < 0)
		die("cannot run", -error);
}

void visit_end(struct walk *walk)
{
	while (walk->pool) {
		struct chunk *chunk = walk->pool;

		walk->pool = chunk->next;
		free(chunk->block);
		free(chunk);
	}
}
