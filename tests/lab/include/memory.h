/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Reads how many objects and pages the kernel has allocated, for tests that look for leaks. Per-CPU
 * caches make the figures vary a little, less than a leak of one object a round.
 */
#ifndef TL_TEST_MEMORY_H
#define TL_TEST_MEMORY_H

#include <glob.h>

#include "check.h"

struct memory {
	long objects;		/* active objects of all kmalloc caches, files and credentials */
	long mms;		/* ... of processes' address spaces: a ring pins its own */
	long vmalloc_kb;
	long unexplained_kb;	/* pages neither free nor in an account of the kernel */
};

/* The number after `name` in a file of /proc, or 0. */
static inline long memory_field(const char *text, const char *name)
{
	const char *found = strstr(text, name);

	return found ? strtol(found + strlen(name), NULL, 10) : 0;
}

/*
 * Pages that CPUs keep for their next allocation: free, and in no account of /proc/meminfo. Kernels
 * that tune these lists by themselves (upstream commit 90b41691b988, 6.7) let them grow by
 * megabytes after many frees.
 */
static inline long pages_kept_by_cpus_kb(void)
{
	static char text[1 << 17];
	long pages = 0;

	CHECK(read_file("/proc/zoneinfo", text, sizeof(text)) > 0);
	for (const char *at = text; (at = strstr(at, "count:")); at++)
		pages += memory_field(at, "count:");
	return pages * 4;
}

static inline struct memory memory_now(void)
{
	static const char *const names[] = { "kmalloc-", "filp ", "cred_jar " };
	static const char *const accounts[] = {
		"MemFree:", "Buffers:", "Cached:", "AnonPages:", "Slab:", "KernelStack:",
		"PageTables:", "VmallocUsed:", "Percpu:",
	};
	static char text[1 << 17];
	struct memory memory = { 0 };

	CHECK(read_file("/proc/meminfo", text, sizeof(text)) > 0);
	memory.vmalloc_kb = memory_field(text, "VmallocUsed:");
	memory.unexplained_kb = memory_field(text, "MemTotal:");
	for (size_t i = 0; i < sizeof(accounts) / sizeof(*accounts); i++)
		memory.unexplained_kb -= memory_field(text, accounts[i]);
	memory.unexplained_kb -= pages_kept_by_cpus_kb();
	if (read_file("/proc/slabinfo", text, sizeof(text)) <= 0)
		SKIP("no /proc/slabinfo");
	memory.mms = memory_field(text, "\nmm_struct ");
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
		for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
			if (!strncmp(line, names[i], strlen(names[i])) &&
			    strncmp(line, "kmalloc-8 ", 10)) /* 512 a slab: all wobble */
				memory.objects += strtol(strchr(line, ' '), NULL, 10);
	return memory;
}

/*
 * Free objects on the slabs that CPUs hold count as active until the caches give them back. The
 * files that ask for it stay open, because what the kernel takes for each that is opened it frees
 * seconds after the close (kfree_rcu): more objects than a leak has.
 */
static inline void memory_shrink_caches(void)
{
	static int files[512];
	static size_t known;
	glob_t caches;

	if (!known && glob("/sys/kernel/slab/*/shrink", 0, NULL, &caches) == 0) {
		CHECK(caches.gl_pathc <= sizeof(files) / sizeof(*files));
		for (; known < caches.gl_pathc; known++)
			files[known] = MUST(open(caches.gl_pathv[known], O_WRONLY | O_CLOEXEC));
		globfree(&caches);
	}
	for (size_t i = 0; i < known; i++)	/* ENODEV: the cache is gone */
		CHECK(pwrite(files[i], "1", 1, 0) == 1 || errno == ENODEV);
}

/*
 * Memory is freed after a grace period and by work queues, and caches give back what they hold in
 * several rounds: look again until it no longer falls.
 */
static inline struct memory memory_settled(void)
{
	struct memory now, last;

	write_file("/proc/sys/vm/drop_caches", "3");
	now = memory_now();
	do {
		last = now;
		sleep_ms(300);
		memory_shrink_caches();
		now = memory_now();
	} while (now.objects < last.objects);
	return now;
}

#endif /* TL_TEST_MEMORY_H */
