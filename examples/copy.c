// SPDX-License-Identifier: MIT
/*
 * Copies a tree, as `cp -r SOURCE TARGET` does, by programs of calls. Opening a file, reading and
 * writing until its end, and closing it takes an unknown number of calls, and each needs results of
 * others. Here 32 files of any size are copied in one crossing.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <trapless.h>

#define FILES 32
#define CALLS 6		/* for each file */

static struct tl_batch *batch;
static const char *source, *target;
static char *from[FILES], *to[FILES], buffer[1 << 16];
static unsigned int gets[FILES], files;	/* gets: the slots of the reads */
static int status;

static void complain(const char *name, int error)
{
	fprintf(stderr, "copy: %s: %s\n", name, strerror(error));
	status = 1;
}

/* Queues all calls for the next file. The file is complete when its last read has returned 0. */
static void add_file(mode_t mode)
{
	int in = TL_ADD(batch, SYS_openat, AT_FDCWD, from[files], O_RDONLY);
	int out = TL_ADD(batch, SYS_openat, AT_FDCWD, to[files], O_WRONLY | O_CREAT | O_TRUNC,
			 mode);
	int get = TL_ADD(batch, SYS_read | TL_RESULT(0), in, buffer, sizeof(buffer));
	int put = TL_ADD(batch, SYS_write | TL_RESULT(0) | TL_RESULT(2), out, buffer, get);
	int end = TL_ADD(batch, SYS_close | TL_RESULT(0), out);

	TL_ADD(batch, SYS_close | TL_RESULT(0), in);
	tl_batch_jump(batch, in, TL_IF_ERROR, tl_batch_next(batch));
	tl_batch_jump(batch, out, TL_IF_ERROR, end);
	tl_batch_jump(batch, get, TL_IF_ZERO, end);
	tl_batch_jump(batch, put, TL_IF_FULL, get);
	if (get < 0)	/* the batch is full: no room was left for this file */
		complain(from[files], -get);
	else
		gets[files++] = get;
}

/* Makes the queued calls and looks at what became of each file. */
static void copy_files(void)
{
	int result = tl_batch_flush_all(batch);

	if (result < 0) {
		complain(target, -result);
		exit(2);
	}
	for (unsigned int i = 0; i < files; i++) {
		int64_t in = tl_batch_result(batch, gets[i] - 2);
		int64_t out = tl_batch_result(batch, gets[i] - 1);
		int64_t get = tl_batch_result(batch, gets[i]);
		int64_t put = tl_batch_result(batch, gets[i] + 1);

		if (in < 0)
			complain(from[i], -in);
		else if (out < 0)
			complain(to[i], -out);
		else if (get < 0)
			complain(from[i], -get);
		else if (get)	/* the write behind this read failed, or was short */
			complain(to[i], put < 0 ? -put : ENOSPC);
		free(from[i]);
		free(to[i]);
	}
	files = 0;
}

static int visit(const char *path, const struct stat *stat, int type, struct FTW *ftw)
{
	char name[PATH_MAX], link[PATH_MAX] = "";

	(void)ftw;
	snprintf(name, sizeof(name), "%s%s", target, path + strlen(source));
	if (type == FTW_F && S_ISREG(stat->st_mode)) {
		from[files] = strdup(path);
		to[files] = strdup(name);
		add_file(stat->st_mode & 0777);
		if (files == FILES)
			copy_files();
	} else if (type == FTW_D) {
		if (mkdir(name, stat->st_mode & 0777) && errno != EEXIST)
			complain(name, errno);
	} else if (type == FTW_SL) {
		if (readlink(path, link, sizeof(link) - 1) < 0 || symlink(link, name))
			complain(name, errno);
	} else {
		complain(path, type == FTW_DNR ? EACCES : EOPNOTSUPP);
	}
	return 0;
}

int main(int argc, char **argv)
{
	int error = argc == 3 ? tl_batch_create(&batch, 256, 0) : -EINVAL;

	_Static_assert(FILES * CALLS <= 256, "the batch has room for all");
	if (error) {
		fprintf(stderr, argc == 3 ? "copy: %s\n" : "usage: copy SOURCE TARGET\n",
			strerror(-error));
		return 2;
	}
	source = argv[1];
	target = argv[2];
	if (nftw(source, visit, 64, FTW_PHYS))
		complain(source, errno);
	copy_files();
	tl_batch_destroy(batch);
	return status;
}
