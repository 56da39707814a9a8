// SPDX-License-Identifier: GPL-2.0-only
/* A process forks while its workers are busy: the child has none of them and can have its own. */
#include "busy_workers.h"

static void child(void)
{
	struct ring ring = worker_ring_open(4);
	struct worker worker = { 0 };

	CHECK_EQ(ring_notify(&busy_ring, 1), -EPERM);
	CHECK_EQ(ring_ioctl(&busy_ring, TL_IOC_EXIT), -EPERM);
	worker_start(&worker, &ring);
	ring_queue(&ring, 0, SYS_getpid);
	CHECK_EQ(ring_wait(&ring, 1, 0), 0);
	CHECK_DONE(&ring, 0, getpid());
	workers_end(&ring, &worker, 1);
}

static void parent(void)
{
	busy_workers_start();
	for (int i = 0; i < 5; i++)
		CHECK_EXITED(child_run(child), 0);
}

int main(void)
{
	CHECK_EXITED(child_run(parent), 0);
	return 0;
}
