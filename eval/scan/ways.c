// SPDX-License-Identifier: GPL-2.0-only
/*
 * See ways.h. It owns the calls of each way. All begin with a path: opening the directory, or what
 * the library needs for a tree, is part of the figure.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <liburing.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <trapless.h>
#include <unistd.h>

#include "measure.h"
#include "ways.h"

#define NAMES_BYTES 32768u	/* as the C library's readdir(3) */
#define AT_ONCE 64u		/* statx calls of a batch, and of an entry into io_uring */
#define FLAGS (AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT)

static struct tl_scan *module_scan, *plain_scan;
static struct tl_batch *batch;
static struct io_uring uring;
static bool has_uring;
static char names[NAMES_BYTES] __attribute__((aligned(8)));
static struct statx answers[AT_ONCE];

/* ---- What each way finds ------------------------------------------------------------------- */

static inline __attribute__((always_inline)) void add(struct job *job, const char *name,
						      uint64_t inode, uint64_t bytes,
						      int64_t seconds)
{
	job->entries++;
	job->sum += (inode * 31 + bytes * 7 + (uint64_t)seconds) ^ (uint64_t)(unsigned char)*name;
}

static inline void add_statx(struct job *job, const char *name, const struct statx *x)
{
	add(job, name, x->stx_ino, x->stx_size, x->stx_mtime.tv_sec);
}

static inline void add_entry(struct job *job, const char *name, const struct tl_scan_entry *entry)
{
	add(job, name, entry->ino, entry->bytes, entry->mtime_sec);
	job->bad |= entry->error != 0;
}

static bool is_dots(const char *name)
{
	return name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2]));
}

/* ---- One directory ------------------------------------------------------------------------- */

static void scan(struct job *job, struct tl_scan *with)
{
	const struct tl_scan_entry *entry;

	job->bad |= tl_scan_open(with, AT_FDCWD, job->path) != 0;
	while (tl_scan_next(with, &entry) == 1)
		add_entry(job, tl_scan_name(entry), entry);
	tl_scan_close(with);
}

static void by_scan(void *arg)
{
	scan(arg, module_scan);
}

static void by_scan_plain(void *arg)
{
	scan(arg, plain_scan);
}

/* Calls `each` for the names of the directory, and `after` when the buffer is at its end. */
static void each_name(struct job *job, void (*each)(struct job *, int, const char *),
		      void (*after)(struct job *))
{
	int fd = open(job->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	long bytes;

	while ((bytes = syscall(SYS_getdents64, fd, names, sizeof(names))) > 0) {
		for (long at = 0; at < bytes;) {
			const struct dirent64 *name = (const void *)(names + at);

			at += name->d_reclen;
			if (!is_dots(name->d_name))
				each(job, fd, name->d_name);
		}
		if (after)
			after(job);
	}
	job->bad |= bytes < 0;
	close(fd);
}

static void statx_now(struct job *job, int fd, const char *name)
{
	struct statx x;

	job->bad |= syscall(SYS_statx, fd, name, FLAGS, STATX_BASIC_STATS, &x) != 0;
	add_statx(job, name, &x);
}

static void by_statx(void *arg)
{
	each_name(arg, statx_now, NULL);
}

static const char *queued[AT_ONCE];
static unsigned int queued_n;

static void flush_batch(struct job *job)
{
	job->bad |= tl_batch_flush(batch) < 0;
	for (unsigned int i = 0; i < queued_n; i++) {
		job->bad |= tl_batch_result(batch, i) != 0;
		add_statx(job, queued[i], &answers[i]);
	}
	queued_n = 0;
}

static void queue_statx(struct job *job, int fd, const char *name)
{
	TL_ADD(batch, SYS_statx, fd, name, FLAGS, STATX_BASIC_STATS, &answers[queued_n]);
	queued[queued_n++] = name;
	if (queued_n == AT_ONCE)
		flush_batch(job);
}

static void by_batch(void *arg)
{
	each_name(arg, queue_statx, flush_batch);
}

static void flush_uring(struct job *job)
{
	unsigned int head, seen = 0;
	struct io_uring_cqe *cqe;

	if (!queued_n)
		return;
	job->bad |= io_uring_submit_and_wait(&uring, queued_n) < 0;
	io_uring_for_each_cqe(&uring, head, cqe) {
		job->bad |= cqe->res != 0;
		seen++;
	}
	io_uring_cq_advance(&uring, seen);
	job->bad |= seen != queued_n;
	for (unsigned int i = 0; i < queued_n; i++)
		add_statx(job, queued[i], &answers[i]);
	queued_n = 0;
}

static void queue_uring(struct job *job, int fd, const char *name)
{
	io_uring_prep_statx(io_uring_get_sqe(&uring), fd, name, FLAGS, STATX_BASIC_STATS,
			    &answers[queued_n]);
	queued[queued_n++] = name;
	if (queued_n == AT_ONCE)
		flush_uring(job);
}

static void by_uring(void *arg)
{
	each_name(arg, queue_uring, flush_uring);
}

/* As most programs do it. */
static void by_readdir(void *arg)
{
	struct job *job = arg;
	DIR *dir = opendir(job->path);
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		struct stat stat;

		if (is_dots(entry->d_name))
			continue;
		job->bad |= fstatat(dirfd(dir), entry->d_name, &stat, AT_SYMLINK_NOFOLLOW) != 0;
		add(job, entry->d_name, stat.st_ino, (uint64_t)stat.st_size, stat.st_mtime);
	}
	job->bad |= !dir;
	closedir(dir);
}

/* ---- Trees --------------------------------------------------------------------------------- */

static void walk(struct job *job, unsigned int flags)
{
	const struct tl_walk_entry *entry;
	struct tl_walk *with;

	job->bad |= tl_walk_create(&with, AT_FDCWD, job->path, 0, flags, 0) != 0;
	if (job->bad)
		return;
	while (tl_walk_next(with, &entry) == 1) {
		add_entry(job, entry->name, entry->attributes);
		job->bad |= entry->kind != TL_WALK_ENTRY;
	}
	tl_walk_destroy(with);
}

static void by_walk(void *arg)
{
	walk(arg, TL_MODULE);
}

static void by_walk_plain(void *arg)
{
	walk(arg, TL_PLAIN);
}

static void by_fts(void *arg)
{
	struct job *job = arg;
	char *roots[] = { (char *)(uintptr_t)job->path, NULL };
	FTS *fts = fts_open(roots, FTS_PHYSICAL, NULL);
	FTSENT *entry;

	while (fts && (entry = fts_read(fts))) {
		if (entry->fts_info == FTS_DP)
			continue;
		job->bad |= entry->fts_info != FTS_F && entry->fts_info != FTS_D;
		add(job, entry->fts_level ? entry->fts_name : job->path, entry->fts_statp->st_ino,
		    (uint64_t)entry->fts_statp->st_size, entry->fts_statp->st_mtime);
	}
	job->bad |= !fts;
	fts_close(fts);
}

const struct way ways[] = {
	{ "statx", false, by_statx },		/* the first of a kind is what others must equal */
	{ "scan", false, by_scan },
	{ "scan-plain", false, by_scan_plain },
	{ "batch", false, by_batch },
	{ "io_uring", false, by_uring },
	{ "readdir", false, by_readdir },
	{ "fts", true, by_fts },
	{ "walk", true, by_walk },
	{ "walk-plain", true, by_walk_plain },
};
const unsigned int ways_n = sizeof(ways) / sizeof(ways[0]);

/* ---- Set-up -------------------------------------------------------------------------------- */

void ways_open(void)
{
	struct io_uring_params params = {
		.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
	};

	if (tl_scan_create(&plain_scan, 0, TL_PLAIN))
		measure_fail("cannot create a scan");
	tl_scan_create(&module_scan, 0, TL_MODULE);
	tl_batch_create(&batch, AT_ONCE, TL_MODULE);
	has_uring = !io_uring_queue_init_params(AT_ONCE, &uring, &params);
	if (!module_scan)
		return;
	/* It learns at its first request whether the module makes compound calls. */
	scan(&(struct job){ .path = "/" }, module_scan);
}

void ways_close(void)
{
	tl_scan_destroy(plain_scan);
	tl_scan_destroy(module_scan);
	tl_batch_destroy(batch);
	if (has_uring)
		io_uring_queue_exit(&uring);
}

const char *way_missing(const struct way *way)
{
	bool compound = module_scan && tl_scan_backend(module_scan) == TL_BACKEND_MODULE;

	if ((way->run == by_scan || way->run == by_walk) && !compound)
		return "the module makes no compound calls here";
	if (way->run == by_batch && !batch)
		return "the module is not loaded";
	if (way->run == by_uring && !has_uring)
		return "io_uring is not here";
	return NULL;
}
