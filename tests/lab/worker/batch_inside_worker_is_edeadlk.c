// SPDX-License-Identifier: GPL-2.0-only
/* A worker that is asked to run a batch, or to become a worker again, refuses: no recursion. */
#include "ring.h"

int main(void)
{
	struct ring workers = worker_ring_open(8), other = worker_ring_open(8);
	struct ring batches = ring_open(8);
	struct worker worker = { 0 };

	ring_put(&batches, 0, SYS_getpid);
	ring_put_entry(&workers, 0, &batches, 0, 1);
	ring_put(&workers, 1, SYS_ioctl, workers.fd, TL_IOC_ENTER, workers.requests);
	ring_put(&workers, 2, SYS_ioctl, other.fd, TL_IOC_ENTER, other.requests);
	for (unsigned int slot = 0; slot < 3; slot++)
		ring_submit(&workers, slot);
	worker_start(&worker, &workers);
	CHECK_EQ(ring_wait(&workers, 3, 0), 0);
	for (unsigned int slot = 0; slot < 3; slot++)
		CHECK_DONE(&workers, slot, -EDEADLK);
	CHECK_EQ(ring_state(&batches, 0), TL_SUBMITTED);
	workers_end(&workers, &worker, 1);
	return 0;
}
