// SPDX-License-Identifier: MIT
/*
 * Counts lines, words and bytes of all files of a tree, as `wc` does. For each file a program opens
 * it, asks for its size, maps so much of it and closes it. 32 files take one crossing, which also
 * unmaps the 32 files before them.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <trapless.h>

#define FILES 32

struct counts {
	unsigned long lines, words, bytes;
};

static struct tl_batch *batch;
static struct stat stats[FILES];
static char *names[FILES];
static unsigned int files, first;	/* first: the slot of the first open */
static struct counts total;
static int status;

static void print(const struct counts *counts, const char *name)
{
	printf("%lu %lu %lu %s\n", counts->lines, counts->words, counts->bytes, name);
}

static struct counts count(const char *text, unsigned long bytes)
{
	struct counts counts = { .bytes = bytes };
	bool inside = false;

	for (const char *end = text + bytes; text < end; text++) {
		bool space = *text == ' ' || (*text >= '\t' && *text <= '\r');

		counts.lines += *text == '\n';
		counts.words += !space && !inside;
		inside = !space;
	}
	return counts;
}

/* A file that cannot be opened has no size and no text: the calls behind its open are canceled. */
static void add_file(const char *path)
{
	struct stat *stat = &stats[files];
	int fd = TL_ADD(batch, SYS_openat, AT_FDCWD, names[files] = strdup(path), O_RDONLY);

	TL_ADD(batch, SYS_fstat | TL_RESULT(0), fd, stat);
	TL_ADD(batch, SYS_mmap | TL_WORD64(1) | TL_RESULT(4), NULL, &stat->st_size, PROT_READ,
	       MAP_PRIVATE, fd, 0);
	TL_ADD(batch, SYS_close | TL_RESULT(0), fd);
	if (fd < 0) {	/* the batch is full */
		fprintf(stderr, "words: %s: %s\n", path, strerror(-fd));
		status = 1;
		return;
	}
	if (!files++)
		first = fd;
}

static void count_files(void)
{
	unsigned int done = files;
	int64_t texts[FILES];
	int result = tl_batch_flush_all(batch);

	if (result < 0) {
		fprintf(stderr, "words: %s\n", strerror(-result));
		exit(2);
	}
	for (unsigned int i = 0; i < done; i++) {
		int64_t fd = tl_batch_result(batch, first + 4 * i);

		texts[i] = fd < 0 ? fd : tl_batch_result(batch, first + 4 * i + 2);
		if (fd >= 0 && !stats[i].st_size)
			texts[i] = 0;	/* nothing to map */
	}
	for (unsigned int i = 0; i < done; i++) {
		unsigned long bytes = stats[i].st_size;

		if (texts[i] < 0) {
			fprintf(stderr, "words: %s: %s\n", names[i], strerror(-texts[i]));
			status = 1;
		} else {
			struct counts counts = count((const char *)texts[i], bytes);

			print(&counts, names[i]);
			total.lines += counts.lines;
			total.words += counts.words;
			total.bytes += counts.bytes;
			if (bytes)	/* is unmapped before the next files are opened */
				TL_ADD(batch, SYS_munmap, texts[i], bytes);
		}
		free(names[i]);
	}
	files = 0;
}

static int visit(const char *path, const struct stat *stat, int type, struct FTW *ftw)
{
	(void)ftw;
	if (type == FTW_F && S_ISREG(stat->st_mode)) {
		add_file(path);
		if (files == FILES)
			count_files();
	}
	return 0;
}

int main(int argc, char **argv)
{
	int error = argc == 2 ? tl_batch_create(&batch, 256, 0) : -EINVAL;

	if (error) {
		fprintf(stderr, argc == 2 ? "words: %s\n" : "usage: words TREE\n",
			strerror(-error));
		return 2;
	}
	if (nftw(argv[1], visit, 64, FTW_PHYS)) {
		fprintf(stderr, "words: %s: %s\n", argv[1], strerror(errno));
		status = 1;
	}
	count_files();
	print(&total, "total");
	tl_batch_destroy(batch);
	return status;
}
