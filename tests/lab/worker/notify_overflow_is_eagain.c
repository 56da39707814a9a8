// SPDX-License-Identifier: GPL-2.0-only
/* More requests than the ring has entries cannot be outstanding: -EAGAIN, and none is taken. */
#include "ring.h"

int main(void)
{
	struct ring ring = worker_ring_open(4);
	struct worker worker = { 0 };

	for (unsigned int slot = 0; slot < 4; slot++)
		ring_queue(&ring, slot, SYS_getpid);
	CHECK_EQ(ring_notify(&ring, 3), 3);
	CHECK_EQ(ring_notify(&ring, 2), -EAGAIN);
	CHECK_EQ(ring_wait(&ring, 2, 4), -EAGAIN);
	CHECK_EQ(ring_notify(&ring, 5), -EINVAL);
	CHECK_EQ(ring_notify(&ring, 0xffff), -EINVAL);
	CHECK_EQ(enter(&ring, -1, TL_ENTER_NOTIFY), -EINVAL);
	CHECK_EQ(enter(&ring, 1L << 32, TL_ENTER_NOTIFY), -EINVAL);
	CHECK_EQ(enter(&ring, (long)(1UL << 63), TL_ENTER_WAIT), -EINVAL);
	CHECK_EQ(enter(&ring, -1, TL_ENTER_WAIT), -EINVAL);
	CHECK_EQ(ring_wait(&ring, 5, 0), -EINVAL);
	CHECK_EQ(ring_notify(&ring, 1), 1);
	CHECK_EQ(ring_notify(&ring, 1), -EAGAIN);
	worker_start(&worker, &ring);
	CHECK_EQ(ring_wait(&ring, 0, 0), 0);
	workers_end(&ring, &worker, 1);
	CHECK_EQ(worker.result, 4);
	return 0;
}
