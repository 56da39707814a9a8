// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * Operations on files that take several calls: a file or directory that is read whole, and a file
 * that is written. Each begins as one program of calls, which is all that most need. What is larger
 * goes on with further requests and the same descriptor.
 */
#include "files.h"
#include "../internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define READ_MAX 0x7ffff000u	/* the most that one read(2) returns */

static bool failed(int64_t result)
{
	return result < 0;
}

/* Was this step of the program made? */
static bool made(const struct tl_files_op *op, unsigned int step)
{
	return op->requests[step].state == TL_DONE;
}

static void set_jump(struct tl_files_op *op, unsigned int step, enum tl_condition condition,
		     unsigned int target)
{
	tl_request_jump(&op->requests[step], condition, target);
}

/* ---- Closing, when there is nothing else to do -------------------------------------------- */

static bool closed(struct tl_files_op *op)
{
	op->fd = -1;
	op->result = op->error;
	return true;
}

static bool unlinked(struct tl_files_op *op)
{
	op->result = op->error;
	return true;
}

bool tl_sequence_close(struct tl_files_op *op, int64_t error)
{
	op->error = error;
	op->requests[0] = TL_REQUEST(SYS_close, op->fd);
	op->n = 1;
	op->tidies = true;
	op->advance = closed;
	return false;
}

/* ---- Read -------------------------------------------------------------------------------- */

static bool read_on(struct tl_files_op *op);

/* Makes room for `room` bytes and reads to the end of it. */
static bool read_more(struct tl_files_op *op, uint64_t room)
{
	uint64_t left;
	char *data;

	if (room > op->room) {
		data = tl_heap_resize(op->data, room, 1);
		if (!data)
			return tl_sequence_close(op, -ENOMEM);
		op->data = data;
		op->room = room;
	}
	left = op->room - op->done;
	op->requests[0] = TL_REQUEST(op->nr, op->fd, op->data + op->done,
				     left < READ_MAX ? left : READ_MAX);
	set_jump(op, 0, TL_IF_POSITIVE, 2);
	op->requests[1] = TL_REQUEST(SYS_close, op->fd);
	op->n = 2;
	op->advance = read_on;
	return false;
}

static bool read_on(struct tl_files_op *op)
{
	int64_t result = op->requests[0].result;

	if (made(op, 1)) {
		op->fd = -1;
		op->result = failed(result) ? result : (int64_t)op->done;
		return true;
	}
	if (op->canceled)
		return tl_sequence_close(op, -ECANCELED);
	op->done += (uint64_t)result;
	/* An entry of a directory wants room for the longest name. */
	if (op->room - op->done >= OP_PROBE_BYTES)
		return read_more(op, op->room);
	return read_more(op, 2 * op->room);
}

static bool size_known(struct tl_files_op *op)
{
	const struct stat *status = (const void *)op->attributes;
	uint64_t room = 2 * op->room;

	if (op->canceled)
		return tl_sequence_close(op, -ECANCELED);
	/* One byte more than the file has: a read that fills the room says nothing of its end. */
	if (!failed(op->requests[0].result) && S_ISREG(status->st_mode) &&
	    (uint64_t)status->st_size > op->done)
		room = (uint64_t)status->st_size + 1;
	return read_more(op, room + OP_PROBE_BYTES);
}

static bool first_read(struct tl_files_op *op)
{
	int64_t opened = op->requests[0].result, first = op->requests[1].result;
	int64_t probed = op->requests[2].result;

	if (failed(opened)) {
		op->result = opened;
		return true;
	}
	op->fd = (int)opened;
	op->done = failed(first) ? 0 : (uint64_t)first;
	if (made(op, 3)) {
		op->fd = -1;
		op->result = failed(first) ? first : failed(probed) ? probed : first;
		return true;
	}
	if (op->canceled)
		return tl_sequence_close(op, -ECANCELED);
	memmove(op->data + first, op->data + TL_FILES_ROOM, (size_t)probed);
	op->done += (uint64_t)probed;
	if (op->nr == SYS_getdents64)
		return read_more(op, 2 * op->room);
	op->requests[0] = TL_REQUEST(SYS_fstat, op->fd, op->attributes);
	op->n = 1;
	op->advance = size_known;
	return false;
}

/* Most files fit into the room: open, read, see that there is no more, close. */
void tl_sequence_read(struct tl_files_op *op)
{
	int flags = op->nr == SYS_read ? O_RDONLY : O_RDONLY | O_DIRECTORY;

	op->requests[0] = TL_REQUEST(SYS_openat, op->dirfd, op->path, flags | O_CLOEXEC, 0);
	set_jump(op, 0, TL_IF_ERROR, 4);
	op->requests[1] = TL_REQUEST(op->nr | TL_RESULT(0), 0, op->data, TL_FILES_ROOM);
	set_jump(op, 1, TL_IF_ERROR, 3);
	op->requests[2] = TL_REQUEST(op->nr | TL_RESULT(0), 0, op->data + TL_FILES_ROOM,
				     OP_PROBE_BYTES);
	set_jump(op, 2, TL_IF_POSITIVE, 4);
	op->requests[3] = TL_REQUEST(SYS_close | TL_RESULT(0), 0);
	op->n = 4;
	op->advance = first_read;
}

/* ---- Write ------------------------------------------------------------------------------- */

/*
 * Steps of a write. Those that an operation does not want are steps that do nothing. The file is
 * closed before it takes its name, because some file systems report at close(2) that there is no
 * room. The folder is opened before, so that it cannot fail for want of a descriptor afterwards.
 */
enum write_step {
	W_OPEN,
	W_MODE,		/* its error is no error: there are file systems without modes */
	W_WRITE,
	W_SHORT,	/* leads to the end, and leaves the file open */
	W_SYNC,
	W_CLOSE,
	W_FOLDER,
	W_RENAME,
	W_FOLDER_SYNC,
	W_FOLDER_CLOSE,
	W_STEPS,
};

_Static_assert(W_STEPS <= OP_REQUESTS, "the steps of a write have room");

static struct tl_request no_step(struct tl_files_op *op)
{
	return TL_REQUEST(TL_NR_STORE, &op->attributes[0], 0);
}

static bool write_on(struct tl_files_op *op);

/* The steps that give a file that is closed its name, and make that durable. */
static void fill_in_replace(struct tl_files_op *op)
{
	op->requests[W_FOLDER] = no_step(op);
	op->requests[W_RENAME] = TL_REQUEST(SYS_renameat, op->dirfd, op->temporary, op->dirfd,
					    op->path);
	if (!op->folder) {
		set_jump(op, W_RENAME, TL_IF_ALWAYS, W_STEPS);
		return;
	}
	op->requests[W_FOLDER] = TL_REQUEST(SYS_openat, op->dirfd, op->folder,
					    O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	set_jump(op, W_FOLDER, TL_IF_ERROR, W_STEPS);
	set_jump(op, W_RENAME, TL_IF_ERROR, W_FOLDER_CLOSE);
	op->requests[W_FOLDER_SYNC] = TL_REQUEST(SYS_fsync | TL_RESULT(0), W_FOLDER);
	op->requests[W_FOLDER_CLOSE] = TL_REQUEST(SYS_close | TL_RESULT(0), W_FOLDER);
}

static void fill_in_write(struct tl_files_op *op)
{
	uint32_t of_open = op->fd < 0 ? TL_RESULT(0) : 0;
	uint64_t fd = op->fd < 0 ? W_OPEN : (uint64_t)op->fd;

	for (unsigned int step = W_FOLDER; step < W_STEPS; step++)
		op->requests[step] = no_step(op);
	op->requests[W_MODE] = no_step(op);
	op->requests[W_WRITE] = TL_REQUEST(SYS_write | of_open, fd, op->source + op->done,
					   op->bytes - op->done);
	set_jump(op, W_WRITE, TL_IF_FULL, W_SYNC);
	op->requests[W_SHORT] = no_step(op);
	set_jump(op, W_SHORT, TL_IF_ALWAYS, W_STEPS);
	op->requests[W_SYNC] = no_step(op);
	if (op->flags & TL_FILES_SYNC)
		op->requests[W_SYNC] = TL_REQUEST(SYS_fsync | of_open, fd);
	set_jump(op, W_SYNC, TL_IF_ERROR, W_STEPS);
	op->requests[W_CLOSE] = TL_REQUEST(SYS_close | of_open, fd);
	set_jump(op, W_CLOSE, op->temporary ? TL_IF_ERROR : TL_IF_ALWAYS, W_STEPS);
	if (op->temporary)
		fill_in_replace(op);
	op->n = W_STEPS;
	op->advance = write_on;
}

/* The temporary file goes after an error. */
static bool end_write(struct tl_files_op *op, int64_t error)
{
	op->result = error ? error : (int64_t)op->bytes;
	if (!error || !op->temporary)
		return true;
	op->error = error;
	op->requests[0] = TL_REQUEST(SYS_unlinkat, op->dirfd, op->temporary, 0);
	op->n = 1;
	op->tidies = true;
	op->advance = unlinked;
	return false;
}

static bool closed_after_error(struct tl_files_op *op)
{
	op->fd = -1;
	return end_write(op, op->error);
}

static bool close_after_error(struct tl_files_op *op, int64_t error)
{
	tl_sequence_close(op, error);
	op->advance = closed_after_error;
	return false;
}

/* The error of a step, also where a canceled program has not come to it. */
static int64_t error_of(const struct tl_files_op *op, unsigned int step)
{
	if (!made(op, step))
		return -ECANCELED;
	return failed(op->requests[step].result) ? op->requests[step].result : 0;
}

/* Goes on when the file is closed. */
static bool replace_on(struct tl_files_op *op)
{
	int64_t error = error_of(op, W_CLOSE);

	if (error || !op->temporary)
		return end_write(op, error);
	error = error_of(op, W_FOLDER);
	if (error)
		return end_write(op, error);
	error = error_of(op, W_RENAME);
	if (!error)
		op->temporary = NULL;
	if (!op->folder)
		return end_write(op, error);
	if (!error)
		error = error_of(op, W_FOLDER_SYNC);
	/* There are file systems whose folders cannot be synchronized. */
	if (error == -EINVAL && !op->temporary)
		error = 0;
	if (made(op, W_FOLDER_CLOSE))
		return end_write(op, error);
	op->fd = (int)op->requests[W_FOLDER].result;
	return close_after_error(op, error);
}

static bool write_on(struct tl_files_op *op)
{
	int64_t written = op->requests[W_WRITE].result;

	if (op->fd < 0) {
		if (failed(op->requests[W_OPEN].result)) {
			op->result = op->requests[W_OPEN].result;
			return true;
		}
		op->fd = (int)op->requests[W_OPEN].result;
	}
	if (made(op, W_CLOSE)) {
		op->fd = -1;
		return replace_on(op);
	}
	if (made(op, W_SYNC) && failed(op->requests[W_SYNC].result))
		return close_after_error(op, op->requests[W_SYNC].result);
	if (!failed(written) && written)
		op->done += (uint64_t)written;
	if (op->canceled)
		return close_after_error(op, -ECANCELED);
	if (failed(written) || !written)
		return close_after_error(op, written ? written : -EIO);
	fill_in_write(op);
	op->requests[W_OPEN] = no_step(op);
	return false;
}

void tl_sequence_write(struct tl_files_op *op, int open_flags, mode_t mode)
{
	const char *path = op->path;

	if (op->temporary) {
		path = op->temporary;
		open_flags = O_CREAT | O_EXCL;
	}
	op->fd = -1;
	fill_in_write(op);
	op->requests[W_OPEN] = TL_REQUEST(SYS_openat, op->dirfd, path,
					  O_WRONLY | O_CLOEXEC | open_flags, mode);
	set_jump(op, W_OPEN, TL_IF_ERROR, W_STEPS);
	if (op->flags & TL_FILES_MODE)
		op->requests[W_MODE] = TL_REQUEST(SYS_fchmod | TL_RESULT(0), W_OPEN, mode);
}

/* ---- Many -------------------------------------------------------------------------------- */

static bool all_known(struct tl_files_op *op)
{
	struct tl_files_status *status = (void *)op->data;

	for (uint32_t i = 0; i < op->bytes; i++)
		status[i].result = op->n == 1 ? op->requests[0].result : op->program[i].result;
	op->result = (int64_t)op->bytes;
	return true;
}

void tl_sequence_stat(struct tl_files_op *op, const char *const *paths, int flags,
		      unsigned int mask)
{
	struct tl_files_status *status = (void *)op->data;
	char *path;

	op->program = op->strings;
	path = (char *)(op->program + op->n);
	for (uint32_t i = 0; i < op->n; i++) {
		size_t bytes = strlen(paths[i]) + 1;

		memcpy(path, paths[i], bytes);
		op->program[i] = TL_REQUEST(SYS_statx, op->dirfd, path, flags, mask,
					    &status[i].x);
		path += bytes;
	}
	/* A single call is no program, and its request is the operation's own. */
	op->requests[0] = op->program[0];
	op->bytes = op->n;
	op->advance = all_known;
}
