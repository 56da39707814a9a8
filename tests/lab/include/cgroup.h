/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A control group with a limit of its memory, for tests that exceed it.
 */
#ifndef TL_TEST_CGROUP_H
#define TL_TEST_CGROUP_H

#include <sys/mount.h>
#include <sys/stat.h>

#include "check.h"

#define CGROUP "cgroup/trapless"

/* limit: bytes, as text. Skips the test where the kernel has no such groups. */
static inline void cgroup_make(const char *limit)
{
	MUST(mkdir("cgroup", 0755));
	if (mount("cgroup", "cgroup", "cgroup2", 0, NULL) < 0)
		SKIP("no cgroup2: %s", strerror(errno));
	if (write_file("cgroup/cgroup.subtree_control", "+memory") < 0)
		SKIP("no memory controller");
	MUST(mkdir(CGROUP, 0755));
	CHECK(write_file(CGROUP "/memory.max", limit) > 0);
	write_file(CGROUP "/memory.swap.max", "0");
}

/* The calling process becomes a member. */
static inline void cgroup_enter(void)
{
	CHECK_EQ(write_file(CGROUP "/cgroup.procs", "0"), 1);
}

static inline void cgroup_remove(void)
{
	for (uint64_t end = now_ms() + WAIT_MS; rmdir(CGROUP) < 0 && now_ms() < end;)
		sleep_ms(10);
	MUST(umount2("cgroup", MNT_DETACH));
	rmdir("cgroup");
}

#endif /* TL_TEST_CGROUP_H */
