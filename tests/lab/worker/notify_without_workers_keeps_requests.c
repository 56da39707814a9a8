// SPDX-License-Identifier: GPL-2.0-only
/* Requests notified while no worker is inside wait, untouched, for the first that enters. */
#include "ring.h"

int main(void)
{
	struct ring ring = worker_ring_open(4);
	struct worker worker = { 0 };

	for (unsigned int slot = 0; slot < 4; slot++)
		ring_queue(&ring, slot, SYS_getpid);
	CHECK_EQ(ring_notify(&ring, 0), 0);
	CHECK_EQ(ring_notify(&ring, 3), 3);
	CHECK_EQ(ring_notify(&ring, 1), 1);
	sleep_ms(10);
	for (unsigned int slot = 0; slot < 4; slot++)
		CHECK_EQ(ring_state(&ring, slot), TL_SUBMITTED);
	worker_start(&worker, &ring);
	CHECK_EQ(ring_wait(&ring, 0, 0), 0);
	for (unsigned int slot = 0; slot < 4; slot++)
		CHECK_DONE(&ring, slot, getpid());
	workers_end(&ring, &worker, 1);
	CHECK_EQ(worker.result, 4);
	return 0;
}
