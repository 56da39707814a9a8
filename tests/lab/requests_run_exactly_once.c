/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Four workers and a requester that keeps the ring full: every request is made once. An event
 * counter adds up what was written; each request writes a power-free number of its own.
 */
#include <sys/eventfd.h>

#include "ring.h"

#define ENTRIES 64u
#define REQUESTS 20000u
#define WORKERS 4

int main(void)
{
	struct ring ring = ring_open_spin(ENTRIES, TL_SETUP_WORKERS, 50);
	struct worker workers[WORKERS] = { 0 };
	static uint64_t values[ENTRIES];
	uint64_t expected = 0, sum;
	unsigned int sent = 0;
	int fd = MUST(eventfd(0, 0));

	for (int i = 0; i < WORKERS; i++)
		worker_start(&workers[i], &ring);
	while (sent < REQUESTS) {
		unsigned int added = 0;

		for (unsigned int slot = 0; slot < ENTRIES && sent < REQUESTS; slot++) {
			unsigned int state = ring_state(&ring, slot);

			if (state != TL_FREE && state != TL_DONE)
				continue;
			if (state == TL_DONE)
				CHECK_EQ(ring_result(&ring, slot), 8);
			values[slot] = ++sent;
			expected += sent;
			ring_put(&ring, slot, SYS_write, fd, &values[slot], 8);
			ring_submit(&ring, slot);
			added++;
		}
		/* Three quarters may be under way while the rest is filled in again. */
		CHECK_WITHIN(ring_wait(&ring, added, ENTRIES * 3 / 4), 0, ENTRIES * 3 / 4);
	}
	CHECK_EQ(ring_wait(&ring, 0, 0), 0);
	CHECK_EQ(read(fd, &sum, 8), 8);
	CHECK_EQ(sum, expected);
	CHECK_EQ(ring_stats(&ring).executed, REQUESTS);
	CHECK_EQ(ring_stats(&ring).dropped, 0);
	workers_end(&ring, workers, WORKERS);
	return 0;
}
