// SPDX-License-Identifier: GPL-2.0-only
/*
 * TL_IOC_EXIT comes at any moment of heavy serving. Each request is either done or untouched, the
 * counts of the workers and of the module agree with the states, and all workers return.
 */
#include "random.h"
#include "ring.h"

#define ENTRIES 64u
#define ROUNDS 100
#define WORKERS 3

static void race(struct random *random)
{
	struct ring ring = ring_open_spin(ENTRIES, TL_SETUP_WORKERS, random_below(random, 2) * 30);
	struct worker workers[WORKERS] = { 0 };
	unsigned int done = 0;
	long served = 0;

	for (unsigned int slot = 0; slot < ENTRIES; slot++)
		ring_queue(&ring, slot, slot % 8 ? SYS_getpid : SYS_sched_yield);
	for (int i = 0; i < WORKERS; i++)
		worker_start(&workers[i], &ring);
	CHECK_EQ(ring_notify(&ring, ENTRIES), ENTRIES);
	for (uint32_t spins = random_below(random, 2000); spins; spins--)
		spin_hint();
	CHECK_EQ(ring_ioctl(&ring, TL_IOC_EXIT), 0);
	for (int i = 0; i < WORKERS; i++) {
		worker_join(&workers[i]);
		if (workers[i].result != -ESHUTDOWN)	/* it came late */
			served += workers[i].result;
	}
	for (unsigned int slot = 0; slot < ENTRIES; slot++) {
		unsigned int state = ring_state(&ring, slot);

		CHECK(state == TL_DONE || state == TL_SUBMITTED);
		CHECK_EQ(ring_result(&ring, slot) != 0x5eed, state == TL_DONE);
		done += state == TL_DONE;
	}
	CHECK_EQ(served, done);
	CHECK_EQ(ring_stats(&ring).executed, done);
	ring_close(&ring);
}

int main(void)
{
	struct random random = random_seeded(7);

	for (int round = 0; round < ROUNDS; round++)
		race(&random);
	return 0;
}
