// SPDX-License-Identifier: GPL-2.0-only
/*
 * See file_jobs.h.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "file_jobs.h"
#include "measure.h"

/* ---- Sequences of calls ------------------------------------------------------------------ */

static int64_t outcome(int64_t result)
{
	return result < 0 ? -errno : result;
}

static bool end(struct job *job, int64_t result)
{
	job->result = result;
	job->complete = true;
	return false;
}

/* The first call of a job with a descriptor; the job ends where there is none. */
static bool open_file(struct job *job, int flags)
{
	job->fd = open(job->path, flags | O_CLOEXEC, 0600);
	job->step++;
	return job->fd >= 0 || end(job, -errno);
}

static bool close_file(struct job *job)
{
	close(job->fd);
	return end(job, job->result);
}

static bool read_step(struct job *job)
{
	switch (job->step) {
	case 0:
		return open_file(job, O_RDONLY);
	case 1:
		job->result = outcome(fstat(job->fd, &job->status));
		break;
	case 2:
		/* One byte more than the file has shows that this is all of it. */
		job->result = outcome(read(job->fd, job->buffer, (size_t)job->status.st_size + 1));
		break;
	default:
		return close_file(job);
	}
	job->step++;
	return true;
}

static bool write_step(struct job *job)
{
	switch (job->step) {
	case 0:
		return open_file(job, O_WRONLY | O_CREAT | O_TRUNC);
	case 1:
		job->result = outcome(write(job->fd, job->buffer, JOB_FILE_BYTES));
		break;
	case 2:
		if (fsync(job->fd))
			job->result = -errno;
		break;
	default:
		return close_file(job);
	}
	job->step++;
	return true;
}

static bool list_step(struct job *job)
{
	long got;

	if (!job->step)
		return open_file(job, O_RDONLY | O_DIRECTORY);
	if (job->step == 2)
		return close_file(job);
	got = syscall(SYS_getdents64, job->fd, job->buffer + job->result,
		      JOB_BUFFER_BYTES - (size_t)job->result);
	if (got <= 0)
		job->step++;
	job->result = got < 0 ? -errno : job->result + got;
	return true;
}

static bool stat_step(struct job *job)
{
	int64_t result = outcome(lstat(job->path, &job->status));

	return end(job, result < 0 ? result : job->status.st_size);
}

bool job_call(struct job *job)
{
	static bool (*const steps[WORKS])(struct job *job) = {
		[STAT] = stat_step, [READ] = read_step, [WRITE] = write_step, [LIST] = list_step,
	};

	return steps[job->work](job);
}

/* ---- Trees ------------------------------------------------------------------------------- */

static struct job *make_jobs(unsigned int n)
{
	struct job *jobs = calloc(n, sizeof(*jobs));
	char *buffers = calloc(n, JOB_BUFFER_BYTES);

	if (!jobs || !buffers)
		measure_fail("no memory for %u jobs", n);
	for (unsigned int i = 0; i < n; i++)
		jobs[i].buffer = buffers + (size_t)i * JOB_BUFFER_BYTES;
	return jobs;
}

void jobs_reset(struct job *jobs, unsigned int n, enum work work)
{
	for (unsigned int i = 0; i < n; i++) {
		jobs[i].work = work;
		jobs[i].step = 0;
		jobs[i].result = 0;
		jobs[i].complete = jobs[i].is_right = false;
		memset(&jobs[i].status, 0, sizeof(jobs[i].status));
		memset(jobs[i].buffer, work == WRITE ? JOB_BYTE : 0, JOB_BUFFER_BYTES);
	}
}

void jobs_check(const struct job *jobs, unsigned int n, const char *way)
{
	for (unsigned int i = 0; i < n; i++) {
		const struct job *job = &jobs[i];
		bool right = job->complete && (job->work == LIST ? job->result > 0 :
					       job->result == JOB_FILE_BYTES);

		if (job->work == READ)
			right = right && (job->is_right || job_holds(job->buffer, job->result));
		if (!right)
			measure_fail("by %s: %s has result %ld", way, job->path, (long)job->result);
	}
}

static void make_file(struct job *job)
{
	jobs_reset(job, 1, WRITE);
	while (job_call(job))
		;
	jobs_check(job, 1, "setting up");
}

void tree_make(struct tree *tree, const char *directory, unsigned int count)
{
	tree->count = count;
	tree->folders = (count + JOB_FOLDER_FILES - 1) / JOB_FOLDER_FILES;
	tree->files = make_jobs(count);
	tree->targets = make_jobs(count);
	tree->entries = make_jobs(count);
	tree->names = make_jobs(tree->folders);
	tree->top = make_jobs(1);
	snprintf(tree->top->path, JOB_PATH_BYTES, "%s/tree", directory);
	if (mkdir(tree->top->path, 0700))
		measure_fail("cannot make %s: %s", tree->top->path, strerror(errno));
	for (unsigned int i = 0; i < tree->folders; i++) {
		snprintf(tree->names[i].path, JOB_PATH_BYTES, "%s/tree/%u", directory, i);
		if (mkdir(tree->names[i].path, 0700))
			measure_fail("cannot make %s: %s", tree->names[i].path, strerror(errno));
	}
	for (unsigned int i = 0; i < count; i++) {
		snprintf(tree->files[i].path, JOB_PATH_BYTES, "%s/tree/%u/file-%u", directory,
			 i / JOB_FOLDER_FILES, i);
		snprintf(tree->targets[i].path, JOB_PATH_BYTES, "%s/target-%u", directory, i);
		make_file(&tree->files[i]);
		make_file(&tree->targets[i]);
	}
}

unsigned int tree_entries(struct tree *tree)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < tree->folders; i++) {
		const struct job *folder = &tree->names[i];
		const struct dirent64 *entry;

		for (long at = 0; at < folder->result; at += entry->d_reclen) {
			entry = (const void *)(folder->buffer + at);
			if (entry->d_name[0] == '.')
				continue;
			if (n == tree->count)
				measure_fail("%s has too many entries", folder->path);
			if (snprintf(tree->entries[n++].path, JOB_PATH_BYTES, "%s/%s", folder->path,
				     entry->d_name) >= JOB_PATH_BYTES)
				measure_fail("%s: a name is too long", folder->path);
		}
	}
	return n;
}

static void free_jobs(struct job *jobs)
{
	free(jobs->buffer);
	free(jobs);
}

void tree_remove(struct tree *tree, const char *directory)
{
	char top[JOB_PATH_BYTES];

	for (unsigned int i = 0; i < tree->count; i++) {
		unlink(tree->files[i].path);
		unlink(tree->targets[i].path);
	}
	for (unsigned int i = 0; i < tree->folders; i++)
		rmdir(tree->names[i].path);
	snprintf(top, sizeof(top), "%s/tree", directory);
	if (rmdir(top))
		measure_fail("cannot remove %s: %s", top, strerror(errno));
	free_jobs(tree->files);
	free_jobs(tree->targets);
	free_jobs(tree->entries);
	free_jobs(tree->names);
	free_jobs(tree->top);
}
