// SPDX-License-Identifier: GPL-2.0-only
/*
 * An idle worker looks for requests for spin_us, then sleeps; a notify wakes it and is counted.
 * With no spin it sleeps at once.
 */
#include "ring.h"

static void serve_one(struct ring *ring)
{
	ring_queue(ring, 0, SYS_getpid);
	CHECK_EQ(ring_wait(ring, 1, 0), 0);
	CHECK_DONE(ring, 0, getpid());
}

static void check_spin(unsigned int spin_us)
{
	struct ring ring = ring_open_spin(4, TL_SETUP_WORKERS, spin_us);
	struct worker worker = { 0 };

	worker_start(&worker, &ring);
	for (unsigned int round = 1; round <= 3; round++) {
		wait_asleep(worker.tid);
		CHECK_WITHIN(ring_stats(&ring).sleeps, round, 2 * round);
		serve_one(&ring);
		CHECK_EQ(ring_stats(&ring).wakeups, round);
	}
	workers_end(&ring, &worker, 1);
	CHECK_EQ(worker.result, 3);
}

int main(void)
{
	check_spin(0);
	check_spin(100);
	check_spin(TL_SPIN_US_MAX);
	return 0;
}
