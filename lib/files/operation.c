// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * Operations on files, from the caller's wish to their first requests, and their memory: paths,
 * what is read, and operations that are kept for the next ones. files.c owns where they go.
 */
#include "files.h"
#include "../enter.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPS_KEPT 64u		/* operations with their memory, for the next ones */
#define TEMPORARY_BYTES 22u	/* of a temporary file's name: ".HEX.tmp" */
#define ROOM (TL_FILES_ROOM + OP_PROBE_BYTES)

/* Returns 0, or what an adding function returns that has no operation. */
static int new_op(struct tl_files *files, uint64_t user_data, struct tl_files_op **out)
{
	struct tl_files_op *op;
	uint64_t room = 0;
	char *data = NULL;

	if (tl_files_is_foreign(files))
		return -EPERM;
	op = files->unused.first;
	if (op) {
		tl_op_detach(&files->unused, op);
		files->unused_n--;
		data = op->data;
		room = op->room;
	} else {
		op = tl_heap_resize(NULL, 1, sizeof(*op));
		if (!op)
			return -ENOMEM;
	}
	memset(op, 0, offsetof(struct tl_files_op, name));
	op->data = data;
	op->room = room;
	op->user_data = user_data;
	op->fd = -1;
	op->program = op->requests;
	op->n = 1;
	*out = op;
	return 0;
}

/* Gives the operation its memory, which an earlier one may have left. */
static int make_room(struct tl_files_op *op, uint64_t bytes)
{
	char *data;

	if (op->data && op->room >= bytes)
		return 0;
	data = tl_heap_resize(op->data, bytes, 1);
	if (!data)
		return -ENOMEM;
	op->data = data;
	op->room = bytes;
	return 0;
}

/* Room for the operation's strings. */
static char *strings(struct tl_files_op *op, size_t bytes)
{
	if (bytes <= OP_NAME_BYTES)
		return op->name;
	op->strings = tl_heap_resize(NULL, bytes, 1);
	return op->strings;
}

static void dispose(struct tl_files *files, struct tl_files_op *op)
{
	if (op->strings)
		free(op->strings);
	op->strings = NULL;
	if (files->unused_n == OPS_KEPT || op->room > ROOM) {
		free(op->data);
		free(op);
		return;
	}
	files->unused_n++;
	/* The next operation finds this one's memory in the processor's cache. */
	tl_op_prepend(&files->unused, op, OP_FREE);
}

static int begin(struct tl_files *files, struct tl_files_op *op, struct tl_files_op **out)
{
	files->pending++;
	if (out)
		*out = op;
	tl_op_add(files, op);
	return 0;
}

int tl_files_call(struct tl_files *files, const struct tl_request *call, unsigned int copied,
		  unsigned int rooms, uint64_t user_data, struct tl_files_op **out)
{
	size_t lengths[6] = { 0 }, bytes = 0;
	struct tl_files_op *op;
	char *at = NULL;
	int error;

	error = new_op(files, user_data, &op);
	if (error)
		return error;
	op->requests[0] = *call;
	/* A descriptor that its owner has given up is closed, whatever becomes of the operation. */
	op->tidies = call->nr == SYS_close;
	for (int i = 0; i < 6; i++)
		if (copied & 1u << i)
			bytes += lengths[i] = strlen((char *)(uintptr_t)call->args[i]) + 1;
	if (bytes)
		at = strings(op, bytes);
	if ((bytes && !at) || (rooms && make_room(op, ROOM))) {
		dispose(files, op);
		return -ENOMEM;
	}
	for (int i = 0; i < 6; i++) {
		if (rooms & 1u << i)
			op->requests[0].args[i] = (uintptr_t)op->data;
		if (!lengths[i])
			continue;
		memcpy(at, (char *)(uintptr_t)call->args[i], lengths[i]);
		op->requests[0].args[i] = (uintptr_t)at;
		at += lengths[i];
	}
	return begin(files, op, out);
}

static int read_whole(struct tl_files *files, int dirfd, const char *path, uint64_t user_data,
		      uint32_t nr, struct tl_files_op **out)
{
	size_t bytes = strlen(path) + 1;
	struct tl_files_op *op;
	char *copy;
	int error;

	error = new_op(files, user_data, &op);
	if (error)
		return error;
	copy = strings(op, bytes);
	if (!copy || make_room(op, ROOM)) {
		dispose(files, op);
		return -ENOMEM;
	}
	op->path = memcpy(copy, path, bytes);
	op->dirfd = dirfd;
	op->nr = nr;
	tl_sequence_read(op);
	return begin(files, op, out);
}

int tl_files_read(struct tl_files *files, int dirfd, const char *path, uint64_t user_data,
		  struct tl_files_op **op)
{
	return read_whole(files, dirfd, path, user_data, SYS_read, op);
}

int tl_files_list(struct tl_files *files, int dirfd, const char *path, uint64_t user_data,
		  struct tl_files_op **op)
{
	return read_whole(files, dirfd, path, user_data, SYS_getdents64, op);
}

int tl_files_stat(struct tl_files *files, int dirfd, const char *const *paths, unsigned int n,
		  int flags, unsigned int mask, uint64_t user_data, struct tl_files_op **out)
{
	size_t bytes = n * sizeof(struct tl_request);
	struct tl_files_op *op;
	int error;

	if (!n || n > TL_ENTRIES_MAX)
		return -EINVAL;
	for (unsigned int i = 0; i < n; i++)
		bytes += strlen(paths[i]) + 1;
	error = new_op(files, user_data, &op);
	if (error)
		return error;
	op->strings = tl_heap_resize(NULL, bytes, 1);
	if (!op->strings || make_room(op, n * sizeof(struct tl_files_status))) {
		dispose(files, op);
		return -ENOMEM;
	}
	op->dirfd = dirfd;
	op->n = n;
	tl_sequence_stat(op, paths, flags, mask);
	return begin(files, op, out);
}

/*
 * A new name in the folder, whose path has `bytes` bytes. It is no longer than it must be, however
 * long the file's own name is. O_EXCL detects one that chance has chosen twice.
 */
static void name_temporary(char *name, const char *folder, size_t bytes)
{
	uint64_t random = tl_psc_now_ns();

	raw_syscall(SYS_getrandom, (uintptr_t)&random, sizeof(random), 0, 0, 0, 0);
	memcpy(name, folder, bytes);
	sprintf(name + bytes, ".%016llx.tmp", (unsigned long long)random);
}

/* The strings of a replacement: its path, a new file beside it and, if durable, the folder. */
static bool name_replacement(struct tl_files_op *op, const char *path, size_t length)
{
	const char *slash = strrchr(path, '/');
	size_t beside = slash ? (size_t)(slash + 1 - path) : 0;
	bool durable = op->flags & TL_FILES_SYNC;
	char *copy = strings(op, length + beside + TEMPORARY_BYTES + (durable ? beside + 2 : 0));

	if (!copy)
		return false;
	op->path = memcpy(copy, path, length);
	copy += length;
	name_temporary(copy, path, beside);
	op->temporary = copy;
	if (!durable)
		return true;
	copy += beside + TEMPORARY_BYTES;
	if (beside)
		memcpy(copy, path, beside);
	else
		copy[beside++] = '.';
	copy[beside] = '\0';
	op->folder = copy;
	return true;
}

static bool name_file(struct tl_files_op *op, const char *path, size_t length)
{
	char *copy = strings(op, length);

	if (copy)
		op->path = memcpy(copy, path, length);
	return copy;
}

int tl_files_write(struct tl_files *files, int dirfd, const char *path, const void *data,
		   size_t bytes, int open_flags, mode_t mode, unsigned int flags,
		   uint64_t user_data, struct tl_files_op **out)
{
	size_t length = strlen(path) + 1;
	struct tl_files_op *op;
	int error;

	error = new_op(files, user_data, &op);
	if (error)
		return error;
	op->flags = flags;
	if (!(flags & TL_FILES_REPLACE ? name_replacement(op, path, length)
				       : name_file(op, path, length))) {
		dispose(files, op);
		return -ENOMEM;
	}
	op->dirfd = dirfd;
	op->source = data;
	op->bytes = bytes;
	tl_sequence_write(op, open_flags, mode);
	return begin(files, op, out);
}

void tl_files_release(struct tl_files *files, struct tl_files_op *op)
{
	dispose(files, tl_op_detach(&files->taken, op));
}
