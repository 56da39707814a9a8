// SPDX-License-Identifier: GPL-2.0-only
/*
 * A program that confines all of its threads (TSYNC of seccomp, and of Landlock where the kernel
 * has that) keeps its workers in the module, also while one of them sleeps in a call, and what they
 * make from then on is confined.
 */
#include "filter.h"

#include <linux/landlock.h>
#include <trapless.h>

#ifndef LANDLOCK_RESTRICT_SELF_TSYNC
#define LANDLOCK_RESTRICT_SELF_TSYNC (1U << 3)
#endif

static const char path[] = "outside";

static int64_t call_by_worker(struct tl_psc *psc, uint32_t nr, uint64_t a0, uint64_t a1)
{
	int slot = TL_PSC_ADD(psc, nr, a0, a1);
	int64_t result;

	CHECK(slot >= 0);
	CHECK_EQ(tl_psc_wait(psc, 1), 1);	/* the other one waits for the pipe */
	CHECK_EQ(tl_psc_result(psc, (unsigned int)slot, &result), 1);
	return result;
}

static bool confine_by_landlock(void)
{
	struct landlock_ruleset_attr none = { .handled_access_fs = LANDLOCK_ACCESS_FS_READ_FILE };
	long ruleset = sys(SYS_landlock_create_ruleset, &none, sizeof(none), 0);

	return ruleset >= 0 &&
	       !sys(SYS_landlock_restrict_self, ruleset, LANDLOCK_RESTRICT_SELF_TSYNC);
}

static void program(void)
{
	int64_t result, file;
	struct tl_psc *psc;
	int pipe_fd[2], slot;
	char byte;

	MUST(pipe(pipe_fd));
	CHECK_EQ(tl_psc_create(&psc, 8, 0, TL_MODULE), 0);
	CHECK_EQ(tl_psc_start(psc, 2), 0);
	slot = TL_PSC_ADD(psc, SYS_read, pipe_fd[0], &byte, 1);
	CHECK_EQ(tl_psc_notify(psc), 1);
	file = call_by_worker(psc, SYS_open, (uintptr_t)path, O_RDONLY);
	CHECK(file >= 0);
	CHECK_EQ(call_by_worker(psc, SYS_access, (uintptr_t)path, R_OK), 0);
	filter_install(SYS_access, FILTER_ANY_ARGUMENT, SECCOMP_RET_ERRNO | EACCES,
		       SECCOMP_FILTER_FLAG_TSYNC);
	CHECK_EQ(call_by_worker(psc, SYS_access, (uintptr_t)path, R_OK), -EACCES);
	CHECK_EQ(call_by_worker(psc, SYS_getppid, 0, 0), getppid());
	CHECK_EQ(tl_psc_backend(psc), TL_BACKEND_MODULE);
	if (confine_by_landlock()) {
		CHECK_EQ(call_by_worker(psc, SYS_open, (uintptr_t)path, O_RDONLY), -EACCES);
		CHECK_EQ(call_by_worker(psc, SYS_getppid, 0, 0), getppid());
		CHECK_EQ(tl_psc_backend(psc), TL_BACKEND_MODULE);
	}
	MUST(write(pipe_fd[1], "x", 1));
	CHECK_EQ(tl_psc_wait(psc, 0), 0);
	CHECK_EQ(tl_psc_result(psc, (unsigned int)slot, &result), 1);
	CHECK_EQ(result, 1);
	CHECK_EQ(tl_psc_backend(psc), TL_BACKEND_MODULE);
	tl_psc_destroy(psc);
}

int main(void)
{
	CHECK_EQ(close(MUST(open(path, O_WRONLY | O_CREAT, 0644))), 0);
	CHECK_CHILD(child_run(program));
	return 0;
}
