/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shared parts of the tests of the library's supervisor mode. They use the library's functions
 * only; supervisor.h has functions that do not trust the library.
 */
#ifndef TL_TEST_LIB_SUPERVISOR_H
#define TL_TEST_LIB_SUPERVISOR_H

#include <dirent.h>
#include <trapless.h>

#include "check.h"

#define CALLS 10000
#define MOST_CALLS 9900		/* of CALLS, what interrupts leave in supervisor mode */

static inline void lib_supervisor_need(void)
{
	struct tl_supervisor info = { .size = sizeof(info) };

	CHECK_EQ(tl_supervisor_get(&info), 0);
	if (info.refusals & 1ull << TL_REFUSED_PARAMETER)
		FAIL("the module was loaded without supervisor=1");
	if (info.refusals)
		SKIP("%s", tl_refusal_text((enum tl_refusal)__builtin_ctzll(info.refusals)));
}

/* Of CALLS calls, how many came back to supervisor mode. */
static inline long calls_inside(void)
{
	long inside = 0;

	for (int i = 0; i < CALLS; i++) {
		unsigned int cs;

		sys(SYS_getppid);
		__asm__ volatile("mov %%cs, %0" : "=r"(cs));
		inside += !(cs & 3);
	}
	return inside;
}

/* How many descriptors this process has open on the device; *last is one of them. */
static inline int device_descriptors(int *last)
{
	DIR *folder = opendir("/proc/self/fd");
	struct dirent *entry;
	char target[64];
	int count = 0;

	CHECK(folder);
	while ((entry = readdir(folder))) {
		ssize_t n = readlinkat(dirfd(folder), entry->d_name, target, sizeof(target) - 1);

		if (n < 0)
			continue;
		target[n] = '\0';
		if (strcmp(target, TL_DEVICE))
			continue;
		count++;
		if (last)
			*last = atoi(entry->d_name);
	}
	closedir(folder);
	return count;
}

#endif /* TL_TEST_LIB_SUPERVISOR_H */
