// SPDX-License-Identifier: GPL-2.0-only
/*
 * The files, buffers and checks behind batched_calls.h: what the calls work on, and the proof
 * afterwards that they did. It makes no call inside a measured region.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "measure.h"
#include "batched_calls.h"

#define SETTLE_ROUNDS 6
#ifndef MAP_32BIT
#define MAP_32BIT 0	/* only x86-64 has calls with pointers of 32 bits beside its own */
#endif

static const char *const names[SUBJECTS] = {
	[NOSYS] = "nosys", [GETPID] = "getpid", [GETPPID] = "getppid", [READ1] = "read1",
	[READ4K] = "read4k", [READ1_DISK] = "read1_disk", [WRITE1] = "write1", [STAT] = "stat",
};

const char *subject_name(enum subject subject)
{
	return names[subject];
}

unsigned int subject_calls(enum subject subject, unsigned int n)
{
	bool is_long = subject == READ4K || subject == STAT;

	return (is_long ? SUBJECT_CALLS_LONG : SUBJECT_CALLS) / n * n;
}

/* The byte at an offset of the file: neighbouring calls never read the same value. */
static uint8_t pattern(uint64_t offset)
{
	uint64_t mixed = (offset + 1) * 0x9E3779B97F4A7C15u;

	return (uint8_t)(1 + (mixed >> 40) % 255);
}

static int open_checked(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC, 0600);

	if (fd < 0)
		measure_fail("open %s: %s", path, strerror(errno));
	return fd;
}

static int create_page_file(const char *directory)
{
	uint8_t page[SUBJECT_PAGE];
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/pages", directory);
	fd = open_checked(path, O_RDWR | O_CREAT | O_TRUNC);
	for (uint64_t offset = 0; offset < SUBJECT_FILE_PAGES * SUBJECT_PAGE;
	     offset += SUBJECT_PAGE) {
		for (unsigned int i = 0; i < SUBJECT_PAGE; i++)
			page[i] = pattern(offset + i);
		if (write(fd, page, sizeof(page)) != (ssize_t)sizeof(page))
			measure_fail("write %s: %s", path, strerror(errno));
	}
	return fd;
}

/*
 * The kernel marks pages as they are read, in steps and by the dozen. Read all of them often enough
 * that no page is left to mark. Unmapping a page makes the kernel do the work that it has put off.
 */
static void settle_pages(struct fixture *fixture, int fd)
{
	for (unsigned int round = 0; round < SETTLE_ROUNDS; round++) {
		void *page = mmap(NULL, SUBJECT_PAGE, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

		for (unsigned int j = 0; j < SUBJECT_FILE_PAGES; j++)
			if (pread(fd, fixture->pages[0], SUBJECT_PAGE,
				  (off_t)read4k_offset(j)) != SUBJECT_PAGE)
				measure_fail("reading back the pages: %s", strerror(errno));
		munmap(page, SUBJECT_PAGE);
	}
}

/* Files of different sizes, so that no two answers are alike. */
static void create_stat_files(struct fixture *fixture, const char *directory)
{
	for (unsigned int i = 0; i < SUBJECT_FILES; i++) {
		int fd;

		snprintf(fixture->names[i], SUBJECT_NAME, "%s/file%02u", directory, i);
		fd = open_checked(fixture->names[i], O_RDWR | O_CREAT | O_TRUNC);
		if (ftruncate(fd, 1 + i * 977) || fstat(fd, &fixture->expected[i]))
			measure_fail("%s: %s", fixture->names[i], strerror(errno));
		close(fd);
	}
}

struct fixture *fixture_create(const char *directory, const char *disk)
{
	struct fixture *fixture = mmap(NULL, sizeof(*fixture), PROT_READ | PROT_WRITE,
				       MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT | MAP_POPULATE,
				       -1, 0);

	if (fixture == MAP_FAILED)
		measure_fail("no memory below 4 GB: %s", strerror(errno));
	if (mkdir(directory, 0700) && errno != EEXIST)
		measure_fail("mkdir %s: %s", directory, strerror(errno));
	fixture->page_fd = create_page_file(directory);
	settle_pages(fixture, fixture->page_fd);
	fixture->disk_fd = -1;
	if (disk) {
		fixture->disk_fd = create_page_file(disk);
		settle_pages(fixture, fixture->disk_fd);
	}
	create_stat_files(fixture, directory);
	sync(); /* nothing is left to be written back in the middle of a run */
	fixture->null_fd = open_checked("/dev/null", O_WRONLY);
	fixture->pid = getpid();
	fixture->parent = getppid();
	return fixture;
}

void fixture_clear(struct fixture *fixture, enum subject subject)
{
	if (subject == READ1 || subject == READ1_DISK)
		memset(fixture->bytes, 0, sizeof(fixture->bytes));
	if (subject == READ4K)
		memset(fixture->pages, 0, sizeof(fixture->pages));
	if (subject == STAT)
		memset(fixture->stats, 0, sizeof(fixture->stats));
}

static bool stat_matches(const struct fixture *fixture, unsigned int j, enum stat_form form)
{
	const struct stat *expected = &fixture->expected[j % SUBJECT_FILES];
	uint64_t size, ino;

	switch (form) {
	case STAT_NARROW:
		memcpy(&size, fixture->stats[j].narrow.size, sizeof(size));
		memcpy(&ino, fixture->stats[j].narrow.ino, sizeof(ino));
		break;
	case STAT_RING:
		size = fixture->stats[j].ring.stx_size;
		ino = fixture->stats[j].ring.stx_ino;
		break;
	default:
		size = (uint64_t)fixture->stats[j].plain.st_size;
		ino = fixture->stats[j].plain.st_ino;
		break;
	}
	return size == (uint64_t)expected->st_size && ino == expected->st_ino;
}

static bool page_matches(const struct fixture *fixture, unsigned int j, unsigned int n)
{
	for (unsigned int k = 0; k < SUBJECT_PAGE; k++)
		if (fixture->pages[j % n][k] != pattern(read4k_offset(j) + k))
			return false;
	return true;
}

void fixture_check(const struct fixture *fixture, enum subject subject, enum stat_form form,
		   unsigned int n, unsigned int calls, const char *mechanism)
{
	/* Later batches reuse the pages: only the last batch can be seen. */
	unsigned int first = subject == READ4K ? calls - n : 0;

	for (unsigned int j = first; j < calls; j++) {
		bool good = true;

		if (subject == READ1 || subject == READ1_DISK)
			good = fixture->bytes[j] == pattern(read1_offset(j));
		else if (subject == READ4K)
			good = page_matches(fixture, j, n);
		else if (subject == STAT)
			good = stat_matches(fixture, j, form);
		if (!good)
			measure_fail("%s by %s, N = %u: call %u of %u left wrong data behind",
				     names[subject], mechanism, n, j, calls);
	}
}
