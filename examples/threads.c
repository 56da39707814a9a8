// SPDX-License-Identifier: MIT
/*
 * Counts the lines of many files by fine-grained threads. Each file is one thread, in four phases
 * (open, read until the end, close, done). Each phase ends by queueing a call and naming the
 * function that goes on with its result. The calls of many files share a crossing. One more thread
 * waits for time to pass, and prints the progress meanwhile.
 *
 *	threads FILE...
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trapless.h>

#define PROGRESS_NS 200000000

struct file {
	const char *path;
	int64_t result;		/* of the call that this file waits for */
	int fd;
	int error;
	unsigned long lines;
	char block[4096];
};

static struct tl_thread *progress;
static unsigned int files_left, files_failed;

static void file_done(struct tl_thread *self, void *arg)
{
	struct file *file = arg;

	(void)self;
	if (file->error) {
		fprintf(stderr, "threads: %s: %s\n", file->path, strerror(file->error));
		files_failed++;
	} else {
		printf("%8lu %s\n", file->lines, file->path);
	}
	if (!--files_left)
		tl_wait_cancel(progress);
}

static void file_read(struct tl_thread *self, void *arg)
{
	struct tl_sched *sched = tl_thread_sched(self);
	struct file *file = arg;

	if (file->result <= 0) {
		file->error = (int)-file->result;
		TL_CALL(sched, tl_then(self, file_done, 1), NULL, SYS_close, file->fd);
		return;
	}
	for (int64_t i = 0; i < file->result; i++)
		file->lines += file->block[i] == '\n';
	TL_CALL(sched, tl_then(self, file_read, 1), &file->result, SYS_read, file->fd, file->block,
		sizeof(file->block));
}

static void file_opened(struct tl_thread *self, void *arg)
{
	struct file *file = arg;

	if (file->result < 0) {
		file->error = (int)-file->result;
		file_done(self, file);
		return;
	}
	file->fd = (int)file->result;
	TL_CALL(tl_thread_sched(self), tl_then(self, file_read, 1), &file->result, SYS_read,
		file->fd, file->block, sizeof(file->block));
}

static void file_start(struct tl_thread *self, void *arg)
{
	struct file *file = arg;

	TL_CALL(tl_thread_sched(self), tl_then(self, file_opened, 1), &file->result, SYS_openat,
		AT_FDCWD, file->path, O_RDONLY | O_CLOEXEC);
}

static void show_progress(struct tl_thread *self, void *arg)
{
	(void)arg;
	if (!files_left)
		return;
	fprintf(stderr, "threads: %u files to go\n", files_left);
	tl_wait(tl_thread_sched(self), tl_then(self, show_progress, 1), NULL, -1, 0, PROGRESS_NS);
}

static int run(struct tl_sched *sched, struct file *files, int n, char *const *paths)
{
	int error = tl_thread_create(sched, &progress, show_progress, NULL, 1);

	if (!error)
		error = tl_wait(sched, progress, NULL, -1, 0, PROGRESS_NS);
	files_left = (unsigned int)n;
	for (int i = 0; i < n && !error; i++) {
		files[i].path = paths[i];
		error = tl_thread_create(sched, NULL, file_start, &files[i], 0);
	}
	return error ? error : tl_sched_run(sched);
}

int main(int argc, char **argv)
{
	struct tl_sched_stats stats = { .size = sizeof(stats) };
	int n = argc - 1, error = -ENOMEM;
	struct tl_sched *sched;
	struct file *files;

	if (!n) {
		fprintf(stderr, "usage: threads FILE...\n");
		return 2;
	}
	files = calloc((size_t)n, sizeof(*files));
	if (files)
		error = tl_sched_create(&sched, NULL);
	if (error)
		goto failed;
	error = run(sched, files, n, argv + 1);
	if (!error)
		error = tl_sched_get_stats(sched, &stats);
	if (!error)
		fprintf(stderr, "threads: %lu threads, %lu calls, %lu crossings\n",
			stats.threads_run, stats.calls, stats.crossings);
	tl_sched_destroy(sched);
failed:
	free(files);
	if (error)
		fprintf(stderr, "threads: %s\n", strerror(-error));
	return error || files_failed ? 1 : 0;
}
