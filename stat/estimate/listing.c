// SPDX-License-Identifier: GPL-2.0-only
/* A directory and its files as subjects of the estimate: see listing.h. */
#include "listing.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NAMES_BYTES 32768u	/* as the C library's readdir(3) */
#define ENTRIES_BYTES 65536u	/* as tl_scan_next() */
#define STATX_FLAGS (AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT)

static int directory_fd, one_fd;
static struct tl_batch *batch;
static char files[LISTING_FILES][16];
static char bytes[ENTRIES_BYTES] __attribute__((aligned(8)));

const char *const listing_names[LISTING_SUBJECTS] = {
	"listing.names", "listing.statx", "listing.refused", "listing.fstat",
	"listing.module",
};

int listing_open(const char *path, struct tl_batch *module)
{
	batch = module;
	directory_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (directory_fd < 0)
		return -errno;
	for (unsigned int i = 0; i < LISTING_FILES; i++) {
		snprintf(files[i], sizeof(files[i]), "file-%05u.txt", i);
		if (i)
			close(one_fd);
		one_fd = openat(directory_fd, files[i], O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
		if (one_fd < 0)
			return -errno;
	}
	return 0;
}

/* Reads the directory from its beginning. Returns the number of its files, and of the dots. */
static unsigned int read_names(void)
{
	unsigned int found = 0;
	long length;

	lseek(directory_fd, 0, SEEK_SET);
	while ((length = syscall(SYS_getdents64, directory_fd, bytes, NAMES_BYTES)) > 0)
		for (long at = 0; at < length; found++)
			at += ((struct dirent64 *)(bytes + at))->d_reclen;
	return found;
}

static unsigned int read_entries(void)
{
	unsigned int found = 0;
	long length;

	lseek(directory_fd, 0, SEEK_SET);
	do {
		TL_ADD(batch, TL_NR_SCANDIR, directory_fd, bytes, sizeof(bytes),
		       STATX_BASIC_STATS, 0);
		tl_batch_flush(batch);
		length = tl_batch_result(batch, 0);
		for (long at = 0; at < length; found++)
			at += ((struct tl_scan_entry *)(bytes + at))->size;
	} while (length > 0);
	return found;
}

/* Asks for the attributes of all files. Returns how often that was as it should be. */
static unsigned int ask_each(enum listing what)
{
	unsigned int right = 2; /* the dots, which nobody asks for */
	struct statx attributes;
	struct stat status;

	for (unsigned int i = 0; i < LISTING_FILES; i++)
		switch (what) {
		case LISTING_FSTAT:
			right += !syscall(SYS_fstat, one_fd, &status);
			break;
		case LISTING_REFUSED:
			right += syscall(SYS_statx, -1, files[i], STATX_FLAGS, STATX_BASIC_STATS,
					 &attributes) < 0;
			break;
		default:
			right += !syscall(SYS_statx, directory_fd, files[i], STATX_FLAGS,
					  STATX_BASIC_STATS, &attributes);
		}
	return right;
}

void listing_run(const struct subject *subject, unsigned int calls)
{
	for (unsigned int i = 0; i < calls; i += LISTING_FILES) {
		unsigned int found = subject->what == LISTING_NAMES  ? read_names()
				   : subject->what == LISTING_MODULE ? read_entries()
								       : ask_each(subject->what);

		if (found != LISTING_FILES + 2) {
			fprintf(stderr, "trapless-estimate: %s: %u of %u\n", subject->name, found,
				LISTING_FILES + 2);
			exit(1);
		}
	}
}
