// SPDX-License-Identifier: GPL-2.0-only
/*
 * A user who may read a directory but not search it learns no attribute of its entries, also where
 * another thread gives the descriptor's number to a directory that he may search: after the names
 * were read, and before the first attributes are looked up. A fault of the buffer that the test
 * answers itself holds the request there.
 */
#include <linux/userfaultfd.h>
#include <sys/stat.h>

#include "scan.h"
#include "stranger.h"

#define PAGE 4096

static int number, may_search, must_not, faults;
static char *entries;

static void make(const char *path, mode_t mode, const char *name)
{
	int directory, file;

	MUST(mkdir(path, 0755));
	directory = open_directory(path);
	file = MUST(openat(directory, name, O_CREAT | O_WRONLY, 0600));
	MUST(close(file));
	MUST(fchmod(directory, mode));
	MUST(close(directory));
}

/* Faults of the kernel's own accesses are answered by the privileged alone. */
static void watch_buffer(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = { .mode = UFFDIO_REGISTER_MODE_MISSING };

	entries = MUST(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			    0));
	faults = (int)sys(SYS_userfaultfd, O_CLOEXEC);
	if (faults < 0)
		SKIP("userfaultfd: %s", strerror(-faults));
	MUST(ioctl(faults, UFFDIO_API, &api));
	range.range = (struct uffdio_range){ (uintptr_t)entries, PAGE };
	MUST(ioctl(faults, UFFDIO_REGISTER, &range));
}

static void *exchange(void *unused)
{
	struct uffdio_zeropage page = { .range = { (uintptr_t)entries, PAGE } };
	struct uffd_msg fault;

	CHECK_EQ(read(faults, &fault, sizeof(fault)), sizeof(fault));
	CHECK_EQ(fault.event, UFFD_EVENT_PAGEFAULT);
	MUST(dup2(may_search, number));
	MUST(ioctl(faults, UFFDIO_ZEROPAGE, &page));
	return unused;
}

int main(void)
{
	const struct tl_scan_entry *entry;
	struct ring ring;
	pthread_t thread;

	make("/open", 0755, "shown");
	make("/closed", 0744, "hidden");
	watch_buffer();
	become_stranger();
	ring = ring_open(1);
	if (batch_call(&ring, TL_NR_SCANDIR, -1) == -ENOSYS)
		SKIP("the module does not offer TL_NR_SCANDIR on this kernel");
	may_search = open_directory("/open");
	must_not = open_directory("/closed");
	number = MUST(dup(must_not));
	CHECK_EQ(pthread_create(&thread, NULL, exchange, NULL), 0);
	CHECK_EQ(scan(&ring, number, entries, PAGE, SCAN_ALL, TL_SCAN_NO_DOTS),
		 sizeof(*entry) + 8);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	entry = (const void *)entries;
	CHECK_EQ(strcmp(tl_scan_name(entry), "hidden"), 0);
	/* As statx() by the number says now. */
	CHECK_EQ(entry->error, -ENOENT);
	scan_check_zeros(entry);
	/* And without an exchange. */
	MUST((int)lseek(must_not, 0, SEEK_SET));
	CHECK_EQ(scan(&ring, must_not, entries, PAGE, SCAN_ALL, TL_SCAN_NO_DOTS),
		 sizeof(*entry) + 8);
	CHECK_EQ(entry->error, -EACCES);
	scan_check_zeros(entry);
	return 0;
}
