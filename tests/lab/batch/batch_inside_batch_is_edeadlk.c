// SPDX-License-Identifier: GPL-2.0-only
/*
 * The attack: a batch whose request is a batch recurses without bound and ends the
 * kernel's stack. Also by way of a second ring, and of the ioctl that makes a worker.
 */
#include "ring.h"

int main(void)
{
	struct ring ring = ring_open(8), other = ring_open(8), workers = worker_ring_open(8);

	ring_put_entry(&ring, 0, &ring, 0, 1);
	CHECK_EQ(ring_batch(&ring, 0, 1), 1);
	CHECK_DONE(&ring, 0, -EDEADLK);

	/* ring -> other -> ring -> ... */
	ring_put_entry(&ring, 0, &other, 0, 2);
	ring_put_entry(&other, 0, &ring, 0, 1);
	ring_put(&other, 1, SYS_getpid);
	CHECK_EQ(ring_batch(&ring, 0, 1), 1);
	CHECK_DONE(&ring, 0, -EDEADLK);
	CHECK_EQ(ring_state(&other, 0), TL_SUBMITTED);
	CHECK_EQ(ring_state(&other, 1), TL_SUBMITTED);

	ring_put(&ring, 0, SYS_ioctl, workers.fd, TL_IOC_ENTER, workers.requests);
	ring_put(&ring, 1, SYS_getpid);
	CHECK_EQ(ring_batch(&ring, 0, 2), 2);
	CHECK_DONE(&ring, 0, -EDEADLK);
	CHECK_DONE(&ring, 1, getpid());

	/* The mark is the thread's and goes with the batch: the other ring works again. */
	CHECK_EQ(ring_batch(&other, 1, 1), 1);
	CHECK_DONE(&other, 1, getpid());
	return 0;
}
