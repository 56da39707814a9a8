// SPDX-License-Identifier: GPL-2.0-only
/*
 * See file_ways.h. The pool is in a file of its own.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/syscall.h>
#include <trapless_files.h>

#include "measure.h"
#include "thread_pool.h"
#include "workload_uring.h"
#include "file_ways.h"

#define WORKERS TL_FILES_WORKERS
#define CALLS_MAX 4	/* of one job by io_uring */
#define TASKS_MAX 1024u

static unsigned int at_once;	/* jobs under way at a time */

/* ---- Plain calls, one after another ------------------------------------------------------ */

static bool run_plain(struct job *jobs, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		while (job_call(&jobs[i]))
			;
	return true;
}

/* ---- A pool of threads ------------------------------------------------------------------- */

static bool run_pool(struct job *jobs, unsigned int n)
{
	pool_run(jobs, n, at_once, false);
	return true;
}

static bool run_pool_calls(struct job *jobs, unsigned int n)
{
	pool_run(jobs, n, at_once, true);
	return true;
}

/* ---- io_uring: linked calls on descriptors of the ring ----------------------------------- */

static struct io_uring ring;
static struct statx statuses[TASKS_MAX];
static unsigned int owners[TASKS_MAX];	/* the job that uses a descriptor of the ring */

static const char *open_uring(void)
{
	int result = uring_open(&ring, at_once * CALLS_MAX, URING_NOT_POLLED);

	if (!result)
		result = io_uring_register_files_sparse(&ring, at_once);
	return result ? strerror(-result) : NULL;
}

/* The next request: on the descriptor `at`, and what follows waits for it. */
static struct io_uring_sqe *request(void)
{
	return uring_next(&ring);
}

static void prepare_open(const struct job *job, unsigned int at, int flags)
{
	struct io_uring_sqe *open = request();

	io_uring_prep_openat_direct(open, AT_FDCWD, job->path, flags, 0600, at);
	open->flags |= IOSQE_IO_LINK;
	io_uring_sqe_set_data64(open, 0);
}

static void prepare_close(unsigned int at)
{
	struct io_uring_sqe *close = request();

	io_uring_prep_close_direct(close, at);
	io_uring_sqe_set_data64(close, 1 + at);
}

/* Requests of a job; the last one carries 1 + `at`, the one that has its result 1 + `at` + T. */
static void prepare(const struct job *job, unsigned int at)
{
	struct io_uring_sqe *call;

	if (job->work == STAT) {
		call = request();
		io_uring_prep_statx(call, AT_FDCWD, job->path, AT_SYMLINK_NOFOLLOW,
				    STATX_BASIC_STATS, &statuses[at]);
		io_uring_sqe_set_data64(call, 1 + at);
		return;
	}
	prepare_open(job, at, job->work == READ ? O_RDONLY : O_WRONLY | O_CREAT | O_TRUNC);
	call = request();
	if (job->work == READ)
		io_uring_prep_read(call, (int)at, job->buffer, JOB_BUFFER_BYTES, 0);
	else
		io_uring_prep_write(call, (int)at, job->buffer, JOB_FILE_BYTES, 0);
	/* A read that is short, because it has all of the file, must not prevent the close. */
	call->flags |= IOSQE_FIXED_FILE | IOSQE_IO_HARDLINK;
	io_uring_sqe_set_data64(call, 1 + at + at_once);
	if (job->work == WRITE) {
		call = request();
		io_uring_prep_fsync(call, (int)at, 0);
		call->flags |= IOSQE_FIXED_FILE | IOSQE_IO_HARDLINK;
		io_uring_sqe_set_data64(call, 0);
	}
	prepare_close(at);
}

/* What a completion says about the job on its descriptor. Returns whether that was its last. */
static bool note(struct job *job, unsigned int at, bool is_result, int result)
{
	if (is_result) {
		job->result = result;
		return false;
	}
	if (job->work == STAT)
		job->result = result ? result : (int64_t)statuses[at].stx_size;
	job->complete = true;
	return true;
}

static bool run_uring(struct job *jobs, unsigned int n)
{
	unsigned int begun = 0, ended = 0, taken;
	struct io_uring_cqe *completion;
	unsigned int head;

	if (jobs->work == LIST)
		return false;
	for (; begun < n && begun < at_once; begun++) {
		owners[begun] = begun;
		prepare(&jobs[begun], begun);
	}
	while (ended < n) {
		if (io_uring_submit_and_wait(&ring, 1) < 0)
			measure_fail("io_uring does not take requests");
		taken = 0;
		io_uring_for_each_cqe(&ring, head, completion) {
			uint64_t data = completion->user_data;
			unsigned int at = (unsigned int)((data - 1) % at_once);

			taken++;
			if (!data || !note(&jobs[owners[at]], at, data > at_once, completion->res))
				continue;
			ended++;
			if (begun < n) {
				owners[at] = begun;
				prepare(&jobs[begun++], at);
			}
		}
		io_uring_cq_advance(&ring, taken);
	}
	return true;
}

static void close_uring(void)
{
	io_uring_queue_exit(&ring);
}

/* ---- Files: the engine of this library --------------------------------------------------- */

static struct tl_files *with_module, *without;

static const char *open_files(void)
{
	return tl_files_create(&with_module, WORKERS, TL_MODULE) ? "the module is not loaded" :
								     NULL;
}

static const char *open_files_plain(void)
{
	return tl_files_create(&without, WORKERS, TL_PLAIN) ? "there are no threads" : NULL;
}

static void add(struct tl_files *engine, struct job *job)
{
	struct tl_request call = { .nr = SYS_newfstatat, .args = {
		(uint64_t)AT_FDCWD, (uintptr_t)job->path, (uintptr_t)&job->status,
		AT_SYMLINK_NOFOLLOW } };
	uint64_t data = (uintptr_t)job;
	int result;

	if (job->work == STAT)
		result = tl_files_call(engine, &call, 1u << 1, 0, data, NULL);
	else if (job->work == READ)
		result = tl_files_read(engine, AT_FDCWD, job->path, data, NULL);
	else if (job->work == LIST)
		result = tl_files_list(engine, AT_FDCWD, job->path, data, NULL);
	else
		result = tl_files_write(engine, AT_FDCWD, job->path, job->buffer, JOB_FILE_BYTES,
					O_CREAT | O_TRUNC, 0600, TL_FILES_SYNC, data, NULL);
	if (result)
		measure_fail("an operation is refused: %s", strerror(-result));
}

/* A file's bytes are used where they are, as a user would; names of a folder are copied. */
static void keep(struct tl_files *engine, const struct tl_files_result *result)
{
	struct job *job = (void *)(uintptr_t)result->user_data;

	job->result = result->result;
	if (job->work == STAT && !result->result)
		job->result = job->status.st_size;
	if (job->work == READ && result->result > 0)
		job->is_right = job_holds(result->data, result->result);
	if (job->work == LIST && result->result > 0 && result->result <= JOB_BUFFER_BYTES)
		memcpy(job->buffer, result->data, (size_t)result->result);
	job->complete = true;
	tl_files_release(engine, result->op);
}

static bool run_engine(struct tl_files *engine, struct job *jobs, unsigned int n)
{
	struct pollfd readable = { .fd = tl_files_fd(engine), .events = POLLIN };
	unsigned int begun = 0, ended = 0;
	struct tl_files_result result;

	while (ended < n) {
		while (begun < n && begun - ended < at_once)
			add(engine, &jobs[begun++]);
		if (tl_files_submit(engine) || poll(&readable, 1, -1) != 1)
			measure_fail("the engine does not wake the loop");
		while (tl_files_next(engine, &result) == 1) {
			keep(engine, &result);
			ended++;
		}
	}
	return true;
}

static bool run_files(struct job *jobs, unsigned int n)
{
	return run_engine(with_module, jobs, n);
}

static bool run_files_plain(struct job *jobs, unsigned int n)
{
	return run_engine(without, jobs, n);
}

static void close_engine(struct tl_files *engine)
{
	if (tl_files_destroy(engine))
		measure_fail("the engine has operations left");
}

static void close_files(void)
{
	close_engine(with_module);
}

static void close_files_plain(void)
{
	close_engine(without);
}

/* ---- All of them ------------------------------------------------------------------------- */

static const char *open_pool(void)
{
	pool_open();
	return NULL;
}

static const struct {
	const char *name;
	const char *(*open)(void);
	bool (*run)(struct job *jobs, unsigned int n);
	void (*close)(void);
} ways[WAYS] = {
	[PLAIN] = { "plain", NULL, run_plain, NULL },
	[POOL] = { "pool", open_pool, run_pool, pool_close },
	[POOL_CALLS] = { "pool-calls", open_pool, run_pool_calls, pool_close },
	[URING] = { "uring", open_uring, run_uring, close_uring },
	[FILES] = { "files", open_files, run_files, close_files },
	[FILES_PLAIN] = { "files-plain", open_files_plain, run_files_plain,
			  close_files_plain },
};

const char *way_name(enum way way)
{
	return ways[way].name;
}

const char *way_open(enum way way, unsigned int tasks)
{
	at_once = tasks < TASKS_MAX ? tasks : TASKS_MAX;
	return ways[way].open ? ways[way].open() : NULL;
}

bool way_run(enum way way, struct job *jobs, unsigned int n)
{
	return ways[way].run(jobs, n);
}

void way_close(enum way way)
{
	if (ways[way].close)
		ways[way].close();
}
