// SPDX-License-Identifier: GPL-2.0-only
/* A child neither has its parent's ring in its memory nor may enter by its descriptor. */
#include "ring.h"

static struct ring batches, workers;

static void touch(void)
{
	signal(SIGSEGV, SIG_DFL);
	__atomic_store_n(&batches.requests[0].nr, SYS_getpid, __ATOMIC_RELAXED);
}

static void enter_as_child(void)
{
	void *map;

	CHECK_EQ(ring_batch(&batches, 0, 1), -EPERM);
	CHECK_EQ(ring_notify(&workers, 1), -EPERM);
	CHECK_EQ(ring_wait(&workers, 1, 0), -EPERM);
	CHECK_EQ(ring_ioctl(&workers, TL_IOC_ENTER), -EPERM);
	CHECK_EQ(ring_ioctl(&workers, TL_IOC_EXIT), -EPERM);
	map = device_map(batches.fd, 8);
	CHECK_EQ((long)map, -EPERM);
}

int main(void)
{
	batches = ring_open(8);
	workers = worker_ring_open(8);
	ring_put(&batches, 0, SYS_getppid);
	CHECK_KILLED(child_run(touch), SIGSEGV);
	CHECK_EXITED(child_run(enter_as_child), 0);
	CHECK_EQ(ring_state(&batches, 0), TL_SUBMITTED);
	CHECK_EQ(ring_batch(&batches, 0, 1), 1);
	CHECK_DONE(&batches, 0, getppid());
	return 0;
}
