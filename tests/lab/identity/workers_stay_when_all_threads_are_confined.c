// SPDX-License-Identifier: GPL-2.0-only
/*
 * A thread that confines all threads of its process (TSYNC of seccomp, and of Landlock where the
 * kernel has that) changes workers and requester alike, also a worker that sleeps in a call: the
 * ring serves on, and what it makes from then on is confined.
 */
#include <linux/landlock.h>

#include "filter.h"
#include "ring.h"

#ifndef LANDLOCK_RESTRICT_SELF_TSYNC
#define LANDLOCK_RESTRICT_SELF_TSYNC (1U << 3)
#endif

static const char path[] = "outside";

static long confine_by_seccomp(void)
{
	filter_install(SYS_access, FILTER_ANY_ARGUMENT, SECCOMP_RET_ERRNO | EACCES,
		       SECCOMP_FILTER_FLAG_TSYNC);
	return 0;
}

static long confine_by_landlock(void)
{
	struct landlock_ruleset_attr none = { .handled_access_fs = LANDLOCK_ACCESS_FS_READ_FILE };
	long ruleset = sys(SYS_landlock_create_ruleset, &none, sizeof(none), 0);

	MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	return ruleset < 0 ? ruleset : sys(SYS_landlock_restrict_self, ruleset,
					   LANDLOCK_RESTRICT_SELF_TSYNC);
}

/* Makes the call that is confined, and one that is not. */
static void check_confined(struct ring *ring, long (*confine)(void))
{
	if (confine == confine_by_seccomp)
		ring_queue(ring, 2, SYS_access, path, R_OK);
	else
		ring_queue(ring, 2, SYS_openat, AT_FDCWD, path, O_RDONLY);
	ring_queue(ring, 3, SYS_getppid);
	CHECK_EQ(ring_notify(ring, 2), 2);
	wait_done(ring, 2);
	wait_done(ring, 3);
	CHECK_DONE(ring, 2, -EACCES);
	CHECK_DONE(ring, 3, getppid());
}

static void confine_all(long (*confine)(void))
{
	struct ring ring = worker_ring_open(8);
	struct worker blocked = { 0 }, late = { 0 };
	uint64_t sleeps;
	int pipe_fd[2];
	char byte;

	MUST(pipe(pipe_fd));
	ring_queue(&ring, 0, SYS_access, path, R_OK);
	ring_queue(&ring, 1, SYS_read, pipe_fd[0], &byte, 1);
	CHECK_EQ(ring_notify(&ring, 2), 2);
	worker_start(&blocked, &ring);
	wait_done(&ring, 0);
	CHECK_DONE(&ring, 0, 0);
	WAIT_UNTIL(ring_state(&ring, 1) == TL_RUNNING, "state %u", ring_state(&ring, 1));
	wait_asleep(blocked.tid);
	if (confine() < 0)
		SKIP("this kernel confines no other threads by Landlock");
	/* A worker may come before the requester does, which has been confined as well. */
	sleeps = ring_stats(&ring).sleeps;
	worker_start(&late, &ring);
	WAIT_UNTIL(ring_stats(&ring).sleeps > sleeps ||
		   __atomic_load_n(&late.result, __ATOMIC_RELAXED), "it neither rests nor is back");
	CHECK_EQ(late.result, 0);
	check_confined(&ring, confine);
	MUST(write(pipe_fd[1], "x", 1));
	CHECK_EQ(ring_wait(&ring, 0, 0), 0);
	CHECK_DONE(&ring, 1, 1);
	check_confined(&ring, confine);
	workers_end(&ring, &blocked, 1);
	worker_join(&late);
	CHECK(blocked.result > 0 && late.result > 0);
}

/* Nobody is blocked, and a requester comes whose workers rest. */
static void confine_resting(void)
{
	struct ring ring = worker_ring_open(8);
	struct worker worker = { 0 };

	worker_start(&worker, &ring);
	wait_asleep(worker.tid);
	confine_by_seccomp();
	check_confined(&ring, confine_by_seccomp);
	workers_end(&ring, &worker, 1);
	CHECK_EQ(worker.result, 2);
}

static void by_seccomp(void)
{
	confine_all(confine_by_seccomp);
}

static void by_landlock(void)
{
	confine_all(confine_by_landlock);
}

int main(void)
{
	int status;

	CHECK_EQ(close(MUST(open(path, O_WRONLY | O_CREAT, 0644))), 0);
	CHECK_CHILD(child_run(by_seccomp));
	CHECK_CHILD(child_run(confine_resting));
	status = child_run(by_landlock);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != EXIT_SKIP)
		CHECK_CHILD(status);
	return 0;
}
