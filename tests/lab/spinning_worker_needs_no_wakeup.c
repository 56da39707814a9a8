/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Requests that follow each other within spin_us are served without waking anybody. A worker spins
 * on a CPU of its own only, so it gets one.
 */
#include <sched.h>

#include "ring.h"

#define REQUESTS 2000u

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	MUST(sched_setaffinity(0, sizeof(set), &set));
}

int main(void)
{
	struct ring ring = ring_open_spin(4, TL_SETUP_WORKERS, TL_SPIN_US_MAX);
	struct worker worker = { 0 };
	struct tl_stats stats;

	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		SKIP("needs two CPUs: on one nobody can notify a spinning worker");
	pin(1);
	worker_start(&worker, &ring); /* inherits the CPU */
	pin(0);
	for (unsigned int i = 0; i < REQUESTS; i++) {
		ring_put(&ring, 0, SYS_getpid);
		ring_submit(&ring, 0);
		CHECK_EQ(ring_notify(&ring, 1), 1);
		while (ring_state(&ring, 0) != TL_DONE)
			__builtin_ia32_pause();
	}
	stats = ring_stats(&ring);
	CHECK_EQ(stats.executed, REQUESTS);
	/* A busy host may take a CPU away now and then. */
	CHECK_WITHIN(stats.wakeups, 0, REQUESTS / 2);
	workers_end(&ring, &worker, 1);
	return 0;
}
