// SPDX-License-Identifier: GPL-2.0-only
/*
 * A thread that has confined itself with Landlock cannot have its requests made by a worker that
 * has not, although user, groups and capabilities are the same: notify and enter are -EPERM.
 */
#include <linux/landlock.h>
#include <sys/prctl.h>

#include "ring.h"

static const char path[] = "outside";

static void confine(void)
{
	struct landlock_ruleset_attr none = { .handled_access_fs = LANDLOCK_ACCESS_FS_READ_FILE };
	long ruleset = sys(SYS_landlock_create_ruleset, &none, sizeof(none));

	if (ruleset < 0)
		SKIP("no Landlock: %s", strerror((int)-ruleset));
	MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	CHECK_EQ(sys(SYS_landlock_restrict_self, ruleset), 0);
	CHECK_EQ(sys(SYS_openat, AT_FDCWD, path, O_RDONLY), -EACCES);
}

static void confined_requester(void)
{
	struct ring ring = worker_ring_open(4);
	struct worker worker = { 0 };

	worker_start(&worker, &ring);
	wait_asleep(worker.tid);
	confine();
	ring_queue(&ring, 0, SYS_openat, AT_FDCWD, path, O_RDONLY);
	CHECK_EQ(ring_wait(&ring, 1, 0), -EPERM);
	CHECK_EQ(ring_state(&ring, 0), TL_SUBMITTED);
	workers_end(&ring, &worker, 1);
}

static void *enter_ring(void *arg)
{
	struct worker *worker = arg;

	worker->result = ring_ioctl(worker->ring, TL_IOC_ENTER);
	return NULL;
}

static void *confined_enter(void *arg)
{
	confine();
	return enter_ring(arg);
}

static void confined_worker(void)
{
	struct ring ring = worker_ring_open(4);
	struct worker worker = { .ring = &ring };

	ring_queue(&ring, 0, SYS_getpid);
	CHECK_EQ(ring_notify(&ring, 1), 1);
	CHECK_EQ(pthread_create(&worker.thread, NULL, confined_enter, &worker), 0);
	worker_join(&worker);
	CHECK_EQ(worker.result, -EPERM);
	CHECK_EQ(ring_state(&ring, 0), TL_SUBMITTED);
}

/* Threads that inherit one confinement serve each other. */
static void confined_both(void)
{
	struct ring ring = worker_ring_open(4);
	struct worker worker = { 0 };

	confine();
	worker_start(&worker, &ring);
	ring_queue(&ring, 0, SYS_openat, AT_FDCWD, path, O_RDONLY);
	CHECK_EQ(ring_wait(&ring, 1, 0), 0);
	CHECK_DONE(&ring, 0, -EACCES);
	workers_end(&ring, &worker, 1);
}

int main(void)
{
	CHECK_EQ(close(MUST(open(path, O_WRONLY | O_CREAT, 0600))), 0);
	CHECK_CHILD(child_run(confined_requester));
	CHECK_CHILD(child_run(confined_worker));
	CHECK_CHILD(child_run(confined_both));
	unlink(path);
	return 0;
}
