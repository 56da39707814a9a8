// SPDX-License-Identifier: GPL-2.0-only
/*
 * Four workers and a requester that keeps the ring full: every request is made once, whether the
 * workers sleep at once, spin a little or spin long. An event counter adds up what was written;
 * each request writes a number of its own.
 */
#include <sys/eventfd.h>

#include "ring.h"

#define ENTRIES 64u
#define REQUESTS 6000u
#define WORKERS 4

static uint64_t values[ENTRIES];

/* Fills every slot that is free; returns how many, and adds what they will write to *expected. */
static unsigned int fill(struct ring *ring, int fd, unsigned int *sent, uint64_t *expected)
{
	unsigned int added = 0;

	for (unsigned int slot = 0; slot < ENTRIES && *sent < REQUESTS; slot++) {
		unsigned int state = ring_state(ring, slot);

		if (state != TL_FREE && state != TL_DONE)
			continue;
		if (state == TL_DONE)
			CHECK_EQ(ring_result(ring, slot), 8);
		values[slot] = ++*sent;
		*expected += *sent;
		ring_queue(ring, slot, SYS_write, fd, &values[slot], 8);
		added++;
	}
	return added;
}

static void run(unsigned int spin_us)
{
	struct ring ring = ring_open_spin(ENTRIES, TL_SETUP_WORKERS, spin_us);
	struct worker workers[WORKERS] = { 0 };
	uint64_t expected = 0, sum;
	unsigned int sent = 0;
	long served = 0;
	int fd = MUST(eventfd(0, 0));

	for (int i = 0; i < WORKERS; i++)
		worker_start(&workers[i], &ring);
	while (sent < REQUESTS) {
		unsigned int added = fill(&ring, fd, &sent, &expected);
		unsigned int left = sent % 4 * ENTRIES / 4;

		/* Some may be under way while the rest is filled in again; now and then none. */
		CHECK_WITHIN(ring_wait(&ring, added, left), 0, left);
	}
	CHECK_EQ(ring_wait(&ring, 0, 0), 0);
	CHECK_EQ(read(fd, &sum, 8), 8);
	CHECK_EQ(sum, expected);
	CHECK_EQ(ring_stats(&ring).executed, REQUESTS);
	CHECK_EQ(ring_stats(&ring).dropped, 0);
	workers_end(&ring, workers, WORKERS);
	for (int i = 0; i < WORKERS; i++)
		served += workers[i].result;
	CHECK_EQ(served, REQUESTS);
	close(fd);
}

int main(void)
{
	run(0);
	run(50);
	run(TL_SPIN_US_MAX);
	return 0;
}
