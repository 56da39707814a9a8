// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sixteen workers on the requester's CPU: one of them makes a burst of short calls alone, also when
 * the burst comes in many notifies before that worker runs. Calls that sleep still overlap: each
 * wakes the next worker.
 */
#include "ring.h"

#define BURST 32u
#define ROUNDS 50u
#define WORKERS 16

static void wait_all_asleep(const struct worker *workers)
{
	for (int i = 0; i < WORKERS; i++)
		wait_asleep(workers[i].tid);
}

static uint64_t wakeups_of_burst(struct ring *ring, unsigned int notifies)
{
	uint64_t before = ring_stats(ring).wakeups;

	for (unsigned int slot = 0; slot < BURST; slot++) {
		ring_queue(ring, slot, SYS_getppid);
		if ((slot + 1) % (BURST / notifies) == 0)
			CHECK_EQ(ring_notify(ring, BURST / notifies), BURST / notifies);
	}
	CHECK_EQ(ring_wait(ring, 0, 0), 0);
	for (unsigned int slot = 0; slot < BURST; slot++)
		CHECK_DONE(ring, slot, getppid());
	return ring_stats(ring).wakeups - before;
}

static void check_sleepers_overlap(struct ring *ring)
{
	char bytes[WORKERS];
	int pipe_fd[2];

	MUST(pipe(pipe_fd));
	for (unsigned int slot = 0; slot < WORKERS - 1; slot++)
		ring_queue(ring, slot, SYS_read, pipe_fd[0], &bytes[slot], 1);
	ring_queue(ring, WORKERS - 1, SYS_write, pipe_fd[1], "all the readers", WORKERS - 1);
	CHECK_EQ(ring_wait(ring, WORKERS, 0), 0);
	for (unsigned int slot = 0; slot < WORKERS - 1; slot++)
		CHECK_DONE(ring, slot, 1);
	CHECK_DONE(ring, WORKERS - 1, WORKERS - 1);
}

int main(void)
{
	struct ring ring = worker_ring_open(BURST);
	struct worker workers[WORKERS] = { 0 };
	const struct sched_param none = { 0 };
	uint64_t wakeups = 0;
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(0, &one);
	MUST(sched_setaffinity(0, sizeof(one), &one));
	for (int i = 0; i < WORKERS; i++) {
		worker_start(&workers[i], &ring);
		/* It does not run before the requester waits. */
		MUST(sched_setscheduler(workers[i].tid, SCHED_IDLE, &none));
	}
	wait_all_asleep(workers);
	for (unsigned int round = 0; round < ROUNDS; round++) {
		wakeups += wakeups_of_burst(&ring, 1);
		wakeups += wakeups_of_burst(&ring, BURST);
		wait_all_asleep(workers);
	}
	/* An interrupt now and then lets a worker run early, which then sleeps in between. */
	CHECK_WITHIN(wakeups, ROUNDS, 4 * ROUNDS);
	check_sleepers_overlap(&ring);
	workers_end(&ring, workers, WORKERS);
	return 0;
}
