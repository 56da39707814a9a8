/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A thread whose personality differs from its worker's has no call made under the worker's: uname()
 * and mmap() read it.
 */
#include <sys/personality.h>
#include <sys/utsname.h>

#include "ring.h"

int main(void)
{
	struct worker worker = { 0 };
	struct utsname own, workers;
	int before = MUST(personality(0xffffffff));
	struct ring ring = worker_ring_open(4);

	worker_start(&worker, &ring);
	wait_asleep(worker.tid);
	MUST(personality(UNAME26));
	MUST(uname(&own));
	ring_queue(&ring, 0, SYS_uname, &workers);
	CHECK_EQ(ring_notify(&ring, 1), -EPERM);
	CHECK_EQ(ring_state(&ring, 0), TL_SUBMITTED);
	MUST(personality((unsigned int)before));
	CHECK_EQ(ring_wait(&ring, 1, 0), 0);
	CHECK_DONE(&ring, 0, 0);
	CHECK(strcmp(own.release, workers.release));
	workers_end(&ring, &worker, 1);
	return 0;
}
