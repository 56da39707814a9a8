// SPDX-License-Identifier: GPL-2.0-only
/* A thread under a seccomp filter cannot have its requests made by a worker without it. */
#include "filter.h"
#include "ring.h"

static void filtered_requester(void)
{
	struct ring ring = worker_ring_open(4);
	struct worker worker = { 0 };

	worker_start(&worker, &ring);
	wait_asleep(worker.tid);
	filter_call(SYS_getppid, SECCOMP_RET_ERRNO | EACCES);
	ring_queue(&ring, 0, SYS_getppid);
	CHECK_EQ(ring_notify(&ring, 1), -EPERM);
	sleep_ms(10);
	CHECK_EQ(ring_state(&ring, 0), TL_SUBMITTED);
	workers_end(&ring, &worker, 1);
}

/* Filters that all threads share hold on workers, who are inside when they are installed. */
static void filtered_all(void)
{
	struct ring ring = worker_ring_open(4);
	struct worker worker = { 0 };

	worker_start(&worker, &ring);
	wait_asleep(worker.tid);
	filter_install(SYS_getppid, FILTER_ANY_ARGUMENT, SECCOMP_RET_ERRNO | EACCES,
		       SECCOMP_FILTER_FLAG_TSYNC);
	ring_queue(&ring, 0, SYS_getppid);
	if (ring_notify(&ring, 1) == -EPERM) {
		workers_end(&ring, &worker, 1);	/* the worker was inside with its old filter */
		return;
	}
	CHECK_EQ(ring_wait(&ring, 0, 0), 0);
	CHECK_DONE(&ring, 0, -EACCES);
	workers_end(&ring, &worker, 1);
}

/* ... and on workers that enter under it. */
static void filtered_before(void)
{
	struct ring ring = worker_ring_open(4);
	struct worker worker = { 0 };

	filter_call(SYS_getppid, SECCOMP_RET_ERRNO | EACCES);
	worker_start(&worker, &ring);	/* threads inherit filters */
	ring_put(&ring, 0, SYS_getppid);
	ring_put(&ring, 1, SYS_getpid);
	ring_submit(&ring, 0);
	ring_submit(&ring, 1);
	CHECK_EQ(ring_wait(&ring, 2, 0), 0);
	CHECK_DONE(&ring, 0, -EACCES);
	CHECK_DONE(&ring, 1, getpid());
	workers_end(&ring, &worker, 1);
}

int main(void)
{
	CHECK_EXITED(child_run(filtered_requester), 0);
	CHECK_EXITED(child_run(filtered_all), 0);
	CHECK_EXITED(child_run(filtered_before), 0);
	return 0;
}
