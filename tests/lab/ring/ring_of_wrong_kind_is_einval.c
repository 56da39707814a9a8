// SPDX-License-Identifier: GPL-2.0-only
/* Each entry and each ioctl belongs to a kind of ring: on the other kind it is -EINVAL. */
#include "ring.h"

int main(void)
{
	struct tl_stats stats = { .size = sizeof(stats) };
	struct ring batches = ring_open(8), workers = worker_ring_open(8);
	int bare = device_open();

	for (int which = TL_ENTER_BATCH; which <= TL_ENTER_WAIT; which++)
		CHECK_EQ(enter_at(bare, NULL, 1, which), -EINVAL);
	CHECK_EQ(sys(SYS_ioctl, bare, TL_IOC_ENTER, 0), -EINVAL);
	CHECK_EQ(sys(SYS_ioctl, bare, TL_IOC_EXIT, 0), -EINVAL);
	CHECK_EQ(sys(SYS_ioctl, bare, TL_IOC_STATS, &stats), -EINVAL);

	ring_put(&batches, 0, SYS_getpid);
	CHECK_EQ(ring_notify(&batches, 1), -EINVAL);
	CHECK_EQ(ring_wait(&batches, 1, 0), -EINVAL);
	CHECK_EQ(ring_ioctl(&batches, TL_IOC_ENTER), -EINVAL);
	CHECK_EQ(ring_ioctl(&batches, TL_IOC_EXIT), -EINVAL);

	ring_put(&workers, 0, SYS_getpid);
	CHECK_EQ(ring_batch(&workers, 0, 1), -EINVAL);
	CHECK_EQ(ring_state(&workers, 0), TL_SUBMITTED);
	return 0;
}
