// SPDX-License-Identifier: GPL-2.0-only
/*
 * Requests while everything around them changes: the buffer is written, protected and dropped, the
 * descriptor's number leads to other files, names are made, renamed and removed, a directory is
 * mounted on, and a signal comes each millisecond. A name that nobody touches comes exactly once
 * with its own attributes, where only the buffer's own changes can spoil what the test reads.
 */
#include <sys/eventfd.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "random.h"
#include "scan.h"

#define STABLE 120u		/* names that stay */
#define PASSES 40		/* over the directory, buffer left alone */
#define REQUESTS 4000		/* into the hostile buffer */
#define BYTES 16384u

static struct ring ring;
static char *buffer;
static int number;
static bool stop;

static bool goes_on(void)
{
	return !__atomic_load_n(&stop, __ATOMIC_RELAXED);
}

static void *change_names(void *unused)
{
	char from[64], to[64];
	struct random random = { 7 };

	while (goes_on()) {
		uint64_t dice = random_next(&random);

		snprintf(from, sizeof(from), "/storm/n%u", (unsigned int)(dice >> 8) % 64);
		snprintf(to, sizeof(to), "/storm/m%u", (unsigned int)(dice >> 16) % 64);
		switch (dice % 8) {
		case 0:
		case 1:
			sys(SYS_close, sys(SYS_openat, AT_FDCWD, from, O_CREAT | O_WRONLY, 0600));
			break;
		case 2:
			sys(SYS_unlink, from);
			break;
		case 3:
			sys(SYS_rename, from, to);
			break;
		case 4:
			sys(SYS_mkdir, to, 0700);
			break;
		case 5:
			sys(SYS_rmdir, to);
			break;
		case 6:
			sys(SYS_mount, "none", "/storm/mounted", "tmpfs", 0, "");
			break;
		case 7:
			sys(SYS_umount2, "/storm/mounted", MNT_DETACH);
			break;
		}
	}
	return unused;
}

static void *change_buffer(void *unused)
{
	struct random random = { 11 };

	while (goes_on()) {
		uint64_t dice = random_next(&random);
		char *page = buffer + (dice >> 8) % 4 * 4096;

		switch (dice % 4) {
		case 0:
			mprotect(page, 4096, PROT_READ);
			sched_yield();
			mprotect(page, 4096, PROT_READ | PROT_WRITE);
			break;
		case 1:
			madvise(buffer, BYTES, MADV_DONTNEED);
			break;
		case 2:
			mmap(page, 4096, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
			break;
		case 3:
			madvise(page, 4096, MADV_PAGEOUT);
			break;
		}
	}
	return unused;
}

static void *change_file(void *unused)
{
	static const char *const paths[] = {
		"/storm", "/proc", "/dev/null", "/", "/proc/self/task", "/sys/kernel",
	};
	int ends[2], event = MUST(eventfd(0, 0));

	MUST(pipe(ends));
	for (unsigned int i = 0; goes_on(); i++) {
		int fd = (int)sys(SYS_openat, AT_FDCWD, paths[i % 6], O_RDONLY | O_CLOEXEC);

		MUST(dup2(fd, number));
		sys(SYS_close, fd);
		MUST(dup2(i % 2 ? ends[0] : event, number));
	}
	return unused;
}

static void check_stable(const struct tl_scan_entry *entry, unsigned int *times)
{
	unsigned int i = (unsigned int)atoi(tl_scan_name(entry) + 1);

	times[i]++;
	if (entry->error == -EINTR)
		return;
	CHECK_EQ(entry->error, 0);
	CHECK_EQ(entry->mode, S_IFREG | 0640);
	CHECK_EQ(entry->bytes, i * 3);
	CHECK_EQ(entry->ino, entry->d_ino);
}

/* One pass over the directory in a buffer of which nobody else knows. */
static unsigned int pass(void)
{
	static char own[BYTES] __attribute__((aligned(8)));
	unsigned int times[STABLE] = { 0 }, interrupted = 0;
	int fd = open_directory("/storm");
	long n;

	while ((n = scan(&ring, fd, own, sizeof(own), SCAN_ALL, 0)) > 0)
		scan_each(entry, own, n) {
			scan_check_form(entry, (size_t)(own + n - (char *)entry));
			scan_check_zeros(entry);
			interrupted += entry->error == -EINTR;
			if (tl_scan_name(entry)[0] == 's')
				check_stable(entry, times);
			else if (entry->error && entry->error != -EINTR)
				CHECK_EQ(entry->error, -ENOENT);
		}
	CHECK_EQ(n, 0);
	MUST(close(fd));
	for (unsigned int i = 0; i < STABLE; i++)
		CHECK_EQ(times[i], 1);
	return interrupted;
}

static void attack(void)
{
	struct random random = { 3 };

	for (int i = 0; i < REQUESTS; i++) {
		uint64_t dice = random_next(&random);
		size_t at = (dice >> 8) % BYTES & ~7ul, bytes = (dice >> 24) % (2 * BYTES);
		long n = scan(&ring, number, buffer + at, bytes, SCAN_ALL, (unsigned int)dice & 1);

		if (n < 0 && n != -ENOTDIR && n != -EFAULT && n != -EINVAL && n != -EBADF &&
		    n != -EINTR)
			FAIL("request %d: %ld", i, n);
		CHECK_WITHIN(n, -4095, bytes);
	}
}

int main(void)
{
	void *(*const storms[])(void *) = {
		change_names, change_names, change_buffer, change_file,
	};
	unsigned int interrupted = 0;
	pthread_t threads[4];
	sigset_t alarm;
	char path[64];

	ring = ring_open(1);
	if (batch_call(&ring, TL_NR_SCANDIR, -1) == -ENOSYS)
		SKIP("the module does not offer TL_NR_SCANDIR on this kernel");
	MUST(mkdir("/storm", 0755));
	MUST(mkdir("/storm/mounted", 0755));
	for (unsigned int i = 0; i < STABLE; i++) {
		int fd;

		snprintf(path, sizeof(path), "/storm/s%u", i);
		fd = MUST(open(path, O_CREAT | O_WRONLY, 0640));
		MUST(ftruncate(fd, i * 3));
		MUST(close(fd));
	}
	buffer = MUST(mmap(NULL, 3 * BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			   -1, 0));
	number = open_directory("/");
	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	CHECK_EQ(pthread_sigmask(SIG_BLOCK, &alarm, NULL), 0);
	for (int i = 0; i < 4; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, storms[i], NULL), 0);
	on_signal(SIGALRM, count_signal, SA_RESTART);
	CHECK_EQ(pthread_sigmask(SIG_UNBLOCK, &alarm, NULL), 0);
	alarm_ms(1, 1);
	for (int i = 0; i < PASSES; i++)
		interrupted += pass();
	attack();
	alarm_ms(0, 0);
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (int i = 0; i < 4; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
	printf("%d signals, %u entries without attributes for them\n", (int)handled, interrupted);
	return 0;
}
