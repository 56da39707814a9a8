// SPDX-License-Identifier: GPL-2.0-only
/*
 * A directory gives each name once, whatever becomes of the buffer: too small, with a hole, read
 * only, no memory of the program's, or taken away during the request. The buffer is mapped twice,
 * so the test can read what was written before its first mapping went.
 */
#include <sys/stat.h>

#include "scan.h"

#define NAMES 400u
#define PAGE 4096u
#define BYTES (4 * PAGE)
#define ROUNDS 60

static struct ring ring;
static char *to, *seen_at;		/* the two mappings */
static unsigned int times[NAMES];
static bool stop;

static void make_names(void)
{
	char name[300];

	MUST(mkdir("/names", 0755));
	MUST(chdir("/names"));
	for (unsigned int i = 0; i < NAMES; i++) {
		int length = snprintf(name, sizeof(name), "%u-", i);

		memset(name + length, 'x', sizeof(name) - (size_t)length);
		name[(size_t)length + i * 7 % 240] = '\0';
		MUST(mknod(name, S_IFREG | 0600, 0));
		MUST(truncate(name, i));
	}
}

static void count_names(const char *entries, long bytes)
{
	scan_each(entry, entries, bytes) {
		unsigned int number = (unsigned int)atoi(tl_scan_name(entry));

		scan_check_form(entry, (size_t)(entries + bytes - (const char *)entry));
		CHECK_WITHIN(number, 0, NAMES - 1);
		/* What could not be written to its end says so. */
		if (entry->error) {
			CHECK_EQ(entry->error, -EINTR);
		} else {
			CHECK_EQ(entry->mode, S_IFREG | 0600);
			CHECK_EQ(entry->ino, entry->d_ino);
			CHECK_EQ(entry->bytes, number);
		}
		times[number]++;
	}
}

/* A request into memory that cannot take it all; `at` is where its first mapping is seen. */
static void scan_into(int fd, char *address, size_t bytes, const char *at)
{
	long n = scan(&ring, fd, address, bytes, SCAN_ALL, TL_SCAN_NO_DOTS);

	if (n != -EFAULT && n != -EINVAL)
		count_names(at, n);
}

static void check_each_once(const char *what)
{
	for (unsigned int i = 0; i < NAMES; i++)
		if (times[i] != 1)
			FAIL("%s: name %u came %u times", what, i, times[i]);
	memset(times, 0, sizeof(times));
}

static bool scan_some(int fd)
{
	static char good[3000] __attribute__((aligned(8)));
	long n = scan(&ring, fd, good, sizeof(good), SCAN_ALL, TL_SCAN_NO_DOTS);

	CHECK_WITHIN(n, 0, sizeof(good));
	count_names(good, n);
	return n;
}

static void check_holes(void)
{
	int fd = open_directory("/names");
	unsigned int i = 0;

	MUST(munmap(to + 2 * PAGE, PAGE));
	MUST(mprotect(to + PAGE, PAGE, PROT_READ));
	do {
		size_t before = (size_t)i * 97 % PAGE & ~7ul;

		scan_into(fd, to + PAGE - before, BYTES, seen_at + PAGE - before);
		scan_into(fd, to + 3 * PAGE - before, before + 8, seen_at);
		scan_into(fd, NULL, BYTES, NULL);
		scan_into(fd, (char *)0xffff888000000000ul, SIZE_MAX, NULL);
		scan_into(fd, (char *)-PAGE, SIZE_MAX, NULL);
		scan_into(fd, to, i % 168, seen_at);
		i++;
	} while (scan_some(fd) || i < 10);
	check_each_once("holes");
	MUST(close(fd));
}

static void *take_away(void *unused)
{
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		for (unsigned int page = 0; page < 3; page++) {
			mprotect(to + page * PAGE, PAGE, PROT_NONE);
			sched_yield();
			mprotect(to + page * PAGE, PAGE, PROT_READ | PROT_WRITE);
			madvise(to, BYTES, MADV_DONTNEED);
		}
	}
	return unused;
}

int main(void)
{
	int memory = MUST(memfd_create("entries", 0));
	pthread_t thread;

	ring = ring_open(1);
	if (batch_call(&ring, TL_NR_SCANDIR, -1) == -ENOSYS)
		SKIP("the module does not offer TL_NR_SCANDIR on this kernel");
	make_names();
	MUST(ftruncate(memory, BYTES));
	to = MUST(mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0));
	seen_at = MUST(mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0));
	check_holes();

	to = MUST(mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0));
	CHECK_EQ(pthread_create(&thread, NULL, take_away, NULL), 0);
	for (int i = 0; i < ROUNDS; i++) {
		int fd = open_directory("/names");

		do
			scan_into(fd, to, 3 * PAGE, seen_at);
		while (scan_some(fd));
		check_each_once("memory that comes and goes");
		MUST(close(fd));
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	return 0;
}
