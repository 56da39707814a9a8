// SPDX-License-Identifier: GPL-2.0-only
/*
 * A thread that has given up root cannot have its requests made by a worker that is still root,
 * nor the other way round: notify and enter are -EPERM, and the file that only root may read
 * stays shut. Raw calls: the C library would change all threads.
 */
#include <sys/stat.h>

#include "ring.h"

static const char path[] = "secret";

static void unprivileged_requester(void)
{
	struct ring ring = worker_ring_open(4);
	struct worker worker = { 0 };

	worker_start(&worker, &ring);
	wait_asleep(worker.tid);
	CHECK_EQ(sys(SYS_setresuid, 1000, 1000, 1000), 0);
	CHECK_EQ(sys(SYS_openat, AT_FDCWD, path, O_RDONLY), -EACCES);
	ring_queue(&ring, 0, SYS_openat, AT_FDCWD, path, O_RDONLY);
	CHECK_EQ(ring_notify(&ring, 1), -EPERM);
	CHECK_EQ(ring_wait(&ring, 1, 0), -EPERM);
	sleep_ms(10);
	CHECK_EQ(ring_state(&ring, 0), TL_SUBMITTED);
	CHECK_EQ(ring_stats(&ring).executed, 0);
	workers_end(&ring, &worker, 1);
}

static void *other_worker(void *arg)
{
	struct worker *worker = arg;

	CHECK_EQ(sys(SYS_setresuid, 1000, 1000, 1000), 0);
	worker->result = ring_ioctl(worker->ring, TL_IOC_ENTER);
	return NULL;
}

static void unprivileged_worker(void)
{
	struct ring ring = worker_ring_open(4);
	struct worker worker = { .ring = &ring };

	ring_queue(&ring, 0, SYS_getuid);
	CHECK_EQ(ring_notify(&ring, 1), 1);
	CHECK_EQ(pthread_create(&worker.thread, NULL, other_worker, &worker), 0);
	worker_join(&worker);
	CHECK_EQ(worker.result, -EPERM);
	CHECK_EQ(ring_state(&ring, 0), TL_SUBMITTED);
}

static void *unprivileged_notifier(void *arg)
{
	CHECK_EQ(sys(SYS_setresuid, 1000, 1000, 1000), 0);
	CHECK_EQ(ring_notify(arg, 1), 1);
	return NULL;
}

/* Requests that wait for a first worker stay their requester's: nobody adopts them. */
static void privileged_heir(void)
{
	struct ring ring = worker_ring_open(4);
	struct worker worker = { 0 };
	pthread_t thread;

	ring_queue(&ring, 0, SYS_openat, AT_FDCWD, path, O_RDONLY);
	CHECK_EQ(pthread_create(&thread, NULL, unprivileged_notifier, &ring), 0);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(ring_notify(&ring, 0), -EPERM);
	worker_start(&worker, &ring);
	worker_join(&worker);
	CHECK_EQ(worker.result, -EPERM);
	CHECK_EQ(ring_state(&ring, 0), TL_SUBMITTED);
}

static void *notifier(void *arg)
{
	CHECK_EQ(ring_notify(arg, 1), 1);
	return NULL;
}

/*
 * Nor does a thread that made only the last of them, or that only looked, when it changes its
 * credentials: the others are not its own.
 */
static void heir_of_a_part(unsigned int own)
{
	struct ring ring = worker_ring_open(4);
	pthread_t thread;

	for (unsigned int slot = 0; slot < 2; slot++)
		ring_queue(&ring, slot, SYS_getuid);
	CHECK_EQ(pthread_create(&thread, NULL, notifier, &ring), 0);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(ring_notify(&ring, own), own);
	CHECK_EQ(sys(SYS_setresuid, 1000, 1000, 1000), 0);
	CHECK_EQ(ring_notify(&ring, 0), -EPERM);
	CHECK_EQ(ring_ioctl(&ring, TL_IOC_ENTER), -EPERM);
}

static void heir_of_the_last(void)
{
	heir_of_a_part(1);
}

static void heir_that_looked(void)
{
	heir_of_a_part(0);
}

int main(void)
{
	if (getuid() != 0)
		SKIP("needs root to give it up");
	CHECK(close(MUST(open(path, O_WRONLY | O_CREAT, 0600))) == 0);
	MUST(chmod(path, 0600));
	CHECK_EXITED(child_run(unprivileged_requester), 0);
	CHECK_EXITED(child_run(unprivileged_worker), 0);
	CHECK_EXITED(child_run(privileged_heir), 0);
	CHECK_EXITED(child_run(heir_of_the_last), 0);
	CHECK_EXITED(child_run(heir_that_looked), 0);
	unlink(path);
	return 0;
}
