// SPDX-License-Identifier: GPL-2.0-only
/*
 * A user who may read a directory but not search it learns no attribute of its entries, also where
 * another thread gives the descriptor's number to a directory that he may search.
 */
#include <sys/stat.h>

#include "scan.h"
#include "stranger.h"

#define REQUESTS 3000

static int number, may_search, must_not;
static bool stop;

static void *exchange(void *unused)
{
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		MUST(dup2(may_search, number));
		MUST(dup2(must_not, number));
	}
	return unused;
}

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

int main(void)
{
	char entries[2000] __attribute__((aligned(8)));
	struct ring ring;
	pthread_t thread;
	unsigned int hidden = 0;

	make("/open", 0755, "shown");
	make("/closed", 0744, "hidden");
	become_stranger();
	ring = ring_open(1);
	if (batch_call(&ring, TL_NR_SCANDIR, -1) == -ENOSYS)
		SKIP("the module does not offer TL_NR_SCANDIR on this kernel");
	may_search = open_directory("/open");
	must_not = open_directory("/closed");
	number = MUST(dup(must_not));
	CHECK_EQ(pthread_create(&thread, NULL, exchange, NULL), 0);
	for (int i = 0; i < REQUESTS; i++) {
		long n;

		MUST((int)lseek(may_search, 0, SEEK_SET));
		MUST((int)lseek(must_not, 0, SEEK_SET));
		n = scan(&ring, number, entries, sizeof(entries), SCAN_ALL, TL_SCAN_NO_DOTS);
		CHECK_WITHIN(n, 0, sizeof(entries));
		scan_each(entry, entries, n) {
			if (strcmp(tl_scan_name(entry), "hidden"))
				continue;
			/* Not cached, it is looked up where the number leads then. */
			if (entry->error != -ENOENT)
				CHECK_EQ(entry->error, -EACCES);
			hidden++;
		}
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_WITHIN(hidden, 1, REQUESTS);
	return 0;
}
