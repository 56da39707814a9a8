// SPDX-License-Identifier: GPL-2.0-only
/*
 * A filter kills a worker in the middle of a request: the request is done, the requester that
 * waits for it wakes, other workers serve on, and nothing of the ring stays behind.
 */
#include "filter.h"
#include "ring.h"

int main(void)
{
	struct ring ring = worker_ring_open(8);
	struct worker victim = { 0 }, other = { 0 };

	filter_call(SYS_getppid, SECCOMP_RET_KILL_THREAD);
	worker_start(&victim, &ring);	/* threads inherit filters */
	wait_asleep(victim.tid);
	ring_queue(&ring, 0, SYS_getppid);
	CHECK_EQ(ring_wait(&ring, 1, 0), 0);
	CHECK_DONE(&ring, 0, -ENOSYS);
	wait_thread_end(victim.tid);

	worker_start(&other, &ring);
	ring_queue(&ring, 0, SYS_getpid);
	CHECK_EQ(ring_wait(&ring, 1, 0), 0);
	CHECK_DONE(&ring, 0, getpid());
	workers_end(&ring, &other, 1);
	CHECK_EQ(other.result, 1);
	ring_close(&ring);
	return 0;
}
