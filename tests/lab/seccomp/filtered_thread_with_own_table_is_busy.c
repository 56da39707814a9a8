/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A thread that has a table of descriptors of its own, in a process of several threads: nobody can
 * tell later whether the entering call holds the ring's file. A filter could end such a thread and
 * leave the file behind, so requests under a filter answer -EBUSY there, and the plain call is what
 * the filter ends.
 */
#include "filter.h"
#include "ring.h"

#define ROUNDS 20

static struct ring ring;
static int pipe_fd[2];
static pid_t tid;
static bool reached;	/* the plain call */

static void *batcher(void *arg)
{
	static char byte;

	(void)arg;
	MUST(unshare(CLONE_FILES));
	ring_put(&ring, 0, SYS_read, pipe_fd[0], &byte, 1);
	ring_put(&ring, 1, SYS_getppid);
	__atomic_store_n(&tid, (pid_t)sys(SYS_gettid), __ATOMIC_RELEASE);
	CHECK_EQ(ring_batch(&ring, 0, 2), 1);
	CHECK_EQ(ring_state(&ring, 1), TL_SUBMITTED);
	CHECK_EQ(ring_batch(&ring, 1, 1), -EBUSY);
	__atomic_store_n(&reached, true, __ATOMIC_RELEASE);
	sys(SYS_getppid);
	FAIL("survived a plain call that its filter forbids");
}

static void end_in_plain_call(void)
{
	pthread_t thread;

	ring = ring_open(4);
	MUST(pipe(pipe_fd));
	CHECK_EQ(pthread_create(&thread, NULL, batcher, NULL), 0);
	filter_once_asleep(&tid, SYS_getppid);
	CHECK_EQ(write(pipe_fd[1], "x", 1), 1);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK(__atomic_load_n(&reached, __ATOMIC_ACQUIRE));
}

/* The same for a worker, which leaves. */
static void *filtered_worker(void *arg)
{
	struct worker *worker = arg;

	MUST(unshare(CLONE_FILES));
	__atomic_store_n(&worker->tid, (pid_t)sys(SYS_gettid), __ATOMIC_RELEASE);
	return (void *)ring_ioctl(worker->ring, TL_IOC_ENTER);
}

static void worker_leaves(void)
{
	struct worker worker = { .ring = &ring };
	void *result;

	ring = worker_ring_open(4);
	CHECK_EQ(pthread_create(&worker.thread, NULL, filtered_worker, &worker), 0);
	filter_once_asleep(&worker.tid, SYS_getppid);
	/* It has other descriptors than the requester: it may not serve anyway. */
	ring_put(&ring, 0, SYS_getppid);
	ring_submit(&ring, 0);
	CHECK_EQ(ring_notify(&ring, 1), -EPERM);
	CHECK_EQ(ring_ioctl(&ring, TL_IOC_EXIT), 0);
	CHECK_EQ(pthread_join(worker.thread, &result), 0);
}

int main(void)
{
	for (int round = 0; round < ROUNDS; round++)
		CHECK_EXITED(child_run(end_in_plain_call), 0);
	CHECK_EXITED(child_run(worker_leaves), 0);
	return 0;
}
