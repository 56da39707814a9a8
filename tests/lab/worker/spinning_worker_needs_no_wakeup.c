// SPDX-License-Identifier: GPL-2.0-only
/*
 * Requests that follow each other within spin_us are served without waking anybody. A worker spins
 * on a CPU of its own only, so it gets one.
 */
#include <sched.h>

#include "ring.h"

#define REQUESTS 200u
#define PATIENCE_MS 60000	/* until a round comes in which the host took neither CPU away */

static uint64_t wakeups_of_round(struct ring *ring)
{
	uint64_t before = ring_stats(ring).wakeups;

	for (unsigned int i = 0; i < REQUESTS; i++) {
		ring_queue(ring, 0, SYS_getpid);
		CHECK_EQ(ring_notify(ring, 1), 1);
		while (ring_state(ring, 0) != TL_DONE)
			spin_hint();
	}
	return ring_stats(ring).wakeups - before;
}

int main(void)
{
	struct ring ring = ring_open_spin(4, TL_SETUP_WORKERS, TL_SPIN_US_MAX);
	struct worker worker = { 0 };
	uint64_t least = REQUESTS, rounds = 0, deadline;
	struct tl_stats stats;

	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		SKIP("needs two CPUs: on one nobody can notify a spinning worker");
	pin_to_cpu(1);
	worker_start(&worker, &ring); /* inherits the CPU */
	pin_to_cpu(0);
	deadline = now_ms() + PATIENCE_MS;
	do {
		uint64_t wakeups = wakeups_of_round(&ring);

		if (wakeups < least)
			least = wakeups;
		rounds++;
	} while (least > REQUESTS / 10 && now_ms() < deadline);
	stats = ring_stats(&ring);
	CHECK_EQ(stats.executed, rounds * REQUESTS);
	CHECK_WITHIN(least, 0, REQUESTS / 10);
	workers_end(&ring, &worker, 1);
	return 0;
}
