// SPDX-License-Identifier: GPL-2.0-only
/*
 * The subjects that are N times the same: open a small file, ask for its size, read that much and
 * close it, by each mechanism; and getppid, which shows what a call costs in each. It owns the
 * files and the comparison of every result, which is part of the figure.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bench.h"
#include "measure.h"
#include "traps.h"
#include "workload_uring.h"

#define SIZE_LEAST 200u		/* bytes */

static char byte_of(unsigned int file, long at)
{
	return (char)(1 + (file * 31 + (unsigned long)at * 7) % 255);
}

/* ---- Small files -------------------------------------------------------------------------- */

static void create_files(struct bench *bench, const char *directory)
{
	char bytes[FILE_ROOM];

	bench->directory = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (bench->directory < 0)
		measure_fail("%s: %s", directory, strerror(errno));
	for (unsigned int i = 0; i < FILES_MAX; i++) {
		char *name = bench->names[i];
		int fd;

		bench->sizes[i] = SIZE_LEAST + 11 * i;
		for (long at = 0; at < bench->sizes[i]; at++)
			bytes[at] = byte_of(i, at);
		snprintf(name, NAME_BYTES, "file-%02u", i);
		fd = openat(bench->directory, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		if (fd < 0 || write(fd, bytes, (size_t)bench->sizes[i]) != bench->sizes[i] ||
		    close(fd))
			measure_fail("%s: %s", name, strerror(errno));
	}
}

static void clear_files(struct bench *bench, unsigned int n)
{
	memset(bench->buffers, 0, n * sizeof(bench->buffers[0]));
	memset(bench->stats, 0, n * sizeof(bench->stats[0]));
	memset(bench->statxs, 0, n * sizeof(bench->statxs[0]));
}

static void check_files(struct bench *bench, unsigned int n, const char *mechanism)
{
	for (unsigned int i = 0; i < n; i++)
		for (long at = 0; at < bench->sizes[i]; at++)
			if (bench->buffers[i][at] != byte_of(i, at))
				measure_fail("file %u of %u by %s: byte %ld is wrong", i, n,
					     mechanism, at);
}

static unsigned int files_of(unsigned int n)
{
	return n;
}

static void file_plain(void *arg)
{
	struct run *run = arg;
	struct bench *bench = run->bench;

	for (unsigned int i = 0; i < run->n; i++) {
		uint64_t fd = (uint64_t)trap_fast4(SYS_openat, (uint64_t)bench->directory,
						   (uintptr_t)bench->names[i], O_RDONLY, 0);
		struct stat *stat = &bench->stats[i];

		run->bad |= (unsigned long)trap_fast3(SYS_fstat, fd, (uintptr_t)stat, 0);
		run->bad |= (unsigned long)(trap_fast3(SYS_read, fd, (uintptr_t)bench->buffers[i],
						       (uint64_t)stat->st_size) ^
					    bench->sizes[i]);
		run->bad |= (unsigned long)trap_fast3(SYS_close, fd, 0, 0);
	}
	run->crossings = run->calls = 4 * run->n;
}

/* A batch cannot use its own results: the sizes cost a flush, and so do the descriptors. */
static void file_batch(void *arg)
{
	struct run *run = arg;
	struct bench *bench = run->bench;
	struct tl_batch *batch = bench->batch;
	int64_t fds[FILES_MAX];
	unsigned int n = run->n;

	for (unsigned int i = 0; i < n; i++)
		TL_ADD(batch, SYS_openat, bench->directory, bench->names[i], O_RDONLY);
	run->bad |= (unsigned long)tl_batch_flush(batch) ^ n;
	for (unsigned int i = 0; i < n; i++) {
		fds[i] = tl_batch_result(batch, i);
		TL_ADD(batch, SYS_fstat, fds[i], &bench->stats[i]);
	}
	run->bad |= (unsigned long)tl_batch_flush(batch) ^ n;
	for (unsigned int i = 0; i < n; i++) {
		TL_ADD(batch, SYS_read, fds[i], bench->buffers[i], bench->stats[i].st_size);
		TL_ADD(batch, SYS_close, fds[i]);
	}
	run->bad |= (unsigned long)tl_batch_flush(batch) ^ 2 * n;
	for (unsigned int i = 0; i < n; i++) {
		run->bad |= (unsigned long)(tl_batch_result(batch, 2 * i) ^ bench->sizes[i]);
		run->bad |= (unsigned long)tl_batch_result(batch, 2 * i + 1);
	}
}

static void file_program(void *arg)
{
	struct run *run = arg;
	struct bench *bench = run->bench;
	struct tl_batch *batch = bench->batch;

	for (unsigned int i = 0; i < run->n; i++) {
		struct stat *stat = &bench->stats[i];
		int fd = TL_ADD(batch, SYS_openat, bench->directory, bench->names[i], O_RDONLY);

		TL_ADD(batch, SYS_fstat | TL_RESULT(0), fd, stat);
		TL_ADD(batch, SYS_read | TL_RESULT(0) | TL_WORD64(2), fd, bench->buffers[i],
		       &stat->st_size);
		TL_ADD(batch, SYS_close | TL_RESULT(0), fd);
	}
	run->bad |= (unsigned long)tl_batch_flush(batch) ^ 4 * run->n;
	for (unsigned int i = 0; i < run->n; i++) {
		run->bad |= (unsigned long)(tl_batch_result(batch, 4 * i + 2) ^ bench->sizes[i]);
		run->bad |= (unsigned long)tl_batch_result(batch, 4 * i + 3);
	}
}

static struct array_call copy_of(const void *from, void *to)
{
	return (struct array_call){ .nr = ARRAY_COPY, .args = { (long)to, (long)from } };
}

static void file_c_blake(void *arg)
{
	struct run *run = arg;
	struct bench *bench = run->bench;
	struct array array = { bench->array_results, bench->array_calls, ARRAY_A_FILE * run->n };

	for (unsigned int i = 0; i < run->n; i++) {
		struct array_call *call = &bench->array_calls[ARRAY_A_FILE * i];
		long *result = &bench->array_results[ARRAY_A_FILE * i];
		struct stat *stat = &bench->stats[i];

		/* An open that fails jumps to the next file. */
		call[0] = (struct array_call){ SYS_openat, 7, 0, 0, 3,
			{ bench->directory, (long)bench->names[i], O_RDONLY } };
		call[1] = copy_of(result, &call[4].args[0]);
		call[2] = copy_of(result, &call[6].args[0]);
		call[3] = copy_of(result, &call[7].args[0]);
		call[4] = (struct array_call){ SYS_fstat, 0, 0, 0, 2, { 0, (long)stat } };
		call[5] = copy_of(&stat->st_size, &call[6].args[2]);
		call[6] = (struct array_call){ SYS_read, 0, 0, 0, 3,
			{ 0, (long)bench->buffers[i], 0 } };
		call[7] = (struct array_call){ SYS_close, 0, 0, 0, 1, { 0 } };
	}
	run->bad |= (unsigned long)trap_fast3(SYS_lseek, (uint64_t)bench->array_fd,
					      (uintptr_t)&array, 0) ^ array.count;
	for (unsigned int i = 0; i < run->n; i++) {
		const long *result = &bench->array_results[ARRAY_A_FILE * i];

		run->bad |= (unsigned long)(result[6] ^ bench->sizes[i]);
		run->bad |= (unsigned long)result[7];
	}
	run->crossings = 1;
	run->calls = 4 * run->n;
}

/*
 * io_uring cannot ask a direct descriptor for its size, nor pass a size on: each read asks for all
 * that there is room for. A short read ends a chain unless its link is a hard one.
 */
static void file_uring_linked(struct run *run, bool sizes)
{
	struct bench *bench = run->bench;
	struct io_uring *ring = &bench->uring;
	unsigned int head, seen = 0;
	struct io_uring_cqe *cqe;

	for (unsigned int i = 0; i < run->n; i++) {
		struct io_uring_sqe *sqe;

		if (sizes) {
			sqe = uring_next(ring);
			io_uring_prep_statx(sqe, bench->directory, bench->names[i], 0, STATX_SIZE,
					    &bench->statxs[i]);
			sqe->flags |= IOSQE_IO_LINK | IOSQE_CQE_SKIP_SUCCESS;
		}
		sqe = uring_next(ring);
		io_uring_prep_openat_direct(sqe, bench->directory, bench->names[i], O_RDONLY,
					    0, i);
		sqe->flags |= IOSQE_IO_LINK | IOSQE_CQE_SKIP_SUCCESS;
		sqe = uring_next(ring);
		io_uring_prep_read(sqe, (int)i, bench->buffers[i], FILE_ROOM, 0);
		sqe->flags |= IOSQE_FIXED_FILE | IOSQE_IO_HARDLINK;
		sqe->user_data = (uint64_t)bench->sizes[i];
		sqe = uring_next(ring);
		io_uring_prep_close_direct(sqe, i);
		sqe->user_data = 0;
	}
	run->bad |= io_uring_submit_and_wait(ring, 2 * run->n) < 0;
	io_uring_for_each_cqe(ring, head, cqe) {
		run->bad |= (unsigned long)cqe->res ^ cqe->user_data;
		seen++;
	}
	io_uring_cq_advance(ring, seen);
	run->bad |= seen ^ 2 * run->n;
	run->crossings = 1;
	run->calls = (sizes ? 4 : 3) * run->n;
}

static void file_uring(void *arg)
{
	file_uring_linked(arg, false);
}

static void file_uring_statx(void *arg)
{
	file_uring_linked(arg, true);
}

const struct subject_row file_row = {
	.name = "file", .create = create_files, .prepare = clear_files, .check = check_files,
	.operations = files_of,
	.runners = {
		[PLAIN] = file_plain, [BATCH] = file_batch, [PROGRAM] = file_program,
		[C_BLAKE] = file_c_blake, [URING] = file_uring, [URING_STATX] = file_uring_statx,
	},
};

/* ---- getppid ------------------------------------------------------------------------------ */

static void create_parent(struct bench *bench, const char *directory)
{
	(void)directory;
	bench->parent = getppid();
}

static void prepare_nothing(struct bench *bench, unsigned int n)
{
	(void)bench;
	(void)n;
}

static void check_nothing(struct bench *bench, unsigned int n, const char *mechanism)
{
	(void)bench;
	(void)n;
	(void)mechanism;
}

static void getppid_plain(void *arg)
{
	struct run *run = arg;

	for (unsigned int i = 0; i < run->n; i++)
		run->bad |= (unsigned long)(trap_fast0(SYS_getppid) ^ run->bench->parent);
	run->crossings = run->calls = run->n;
}

static void getppid_batch(void *arg)
{
	struct run *run = arg;
	struct tl_batch *batch = run->bench->batch;

	for (unsigned int i = 0; i < run->n; i++)
		tl_batch_add(batch, SYS_getppid, 0, 0, 0, 0, 0, 0);
	run->bad |= (unsigned long)tl_batch_flush(batch) ^ run->n;
	for (unsigned int i = 0; i < run->n; i++)
		run->bad |= (unsigned long)(tl_batch_result(batch, i) ^ run->bench->parent);
}

/* Each call takes an argument that it does not have from the first call's result. */
static void getppid_program(void *arg)
{
	struct run *run = arg;
	struct tl_batch *batch = run->bench->batch;

	tl_batch_add(batch, SYS_getppid, 0, 0, 0, 0, 0, 0);
	for (unsigned int i = 1; i < run->n; i++)
		tl_batch_add(batch, SYS_getppid | TL_RESULT(0), 0, 0, 0, 0, 0, 0);
	run->bad |= (unsigned long)tl_batch_flush(batch) ^ run->n;
	for (unsigned int i = 0; i < run->n; i++)
		run->bad |= (unsigned long)(tl_batch_result(batch, i) ^ run->bench->parent);
}

static void getppid_c_blake(void *arg)
{
	struct run *run = arg;
	struct bench *bench = run->bench;
	struct array array = { bench->array_results, bench->array_calls, run->n };

	for (unsigned int i = 0; i < run->n; i++)
		bench->array_calls[i] = (struct array_call){ .nr = SYS_getppid };
	run->bad |= (unsigned long)trap_fast3(SYS_lseek, (uint64_t)bench->array_fd,
					      (uintptr_t)&array, 0) ^ array.count;
	for (unsigned int i = 0; i < run->n; i++)
		run->bad |= (unsigned long)(bench->array_results[i] ^ bench->parent);
	run->crossings = 1;
	run->calls = run->n;
}

/* io_uring has no getppid: NOPs stand in. */
static void getppid_uring_bpf(void *arg)
{
	struct run *run = arg;

	run->bad |= (unsigned long)bpf_loop_run(&run->bench->bpf_loop, run->n) ^ run->n;
	run->crossings = 1;
	run->calls = run->n;
}

const struct subject_row getppid_row = {
	.name = "getppid", .create = create_parent, .prepare = prepare_nothing,
	.check = check_nothing, .operations = files_of,
	.runners = {
		[PLAIN] = getppid_plain, [BATCH] = getppid_batch, [PROGRAM] = getppid_program,
		[C_BLAKE] = getppid_c_blake, [URING_BPF] = getppid_uring_bpf,
	},
};
