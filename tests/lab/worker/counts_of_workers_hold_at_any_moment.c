// SPDX-License-Identifier: GPL-2.0-only
/*
 * Whoever sees that a request is done, refused or dropped finds it counted, and whoever asks for
 * the counts before that finds none that was not made.
 */
#include "ring.h"

#define ROUNDS 1000

enum kind { MADE, REFUSED, DROPPED, KINDS };

static void submit(struct ring *ring, enum kind kind)
{
	ring_queue(ring, 0, kind == REFUSED ? SYS_execve : SYS_getppid);
	if (kind == DROPPED)
		__atomic_store_n(&ring->requests[0].state, TL_CANCELED, __ATOMIC_SEQ_CST);
	CHECK_EQ(ring_notify(ring, 1), 1);
}

/* One that counts itself is counted at its end at the latest. */
static void check_count(uint64_t count, unsigned int before, bool ended, bool counts)
{
	CHECK_WITHIN(count, before + (ended && counts), before + counts);
}

static void round_of(struct ring *ring, enum kind kind, unsigned int *before)
{
	const unsigned int end = kind == DROPPED ? TL_FREE : TL_DONE;
	bool ended;

	submit(ring, kind);
	do {
		struct tl_stats stats;

		ended = ring_state(ring, 0) == end;
		stats = ring_stats(ring);
		check_count(stats.executed, before[MADE], ended, kind == MADE);
		check_count(stats.refused, before[REFUSED], ended, kind == REFUSED);
		check_count(stats.dropped, before[DROPPED], ended, kind == DROPPED);
	} while (!ended);
	before[kind]++;
}

int main(void)
{
	struct ring ring = worker_ring_open(4);
	struct worker worker = { 0 };
	unsigned int before[KINDS] = { 0 };

	worker_start(&worker, &ring);
	for (unsigned int round = 0; round < ROUNDS; round++)
		for (int kind = 0; kind < KINDS; kind++)
			round_of(&ring, kind, before);
	workers_end(&ring, &worker, 1);
	CHECK_EQ(worker.result, 2 * ROUNDS);
	CHECK_EQ(ring_stats(&ring).executed, ROUNDS);
	ring_close(&ring);
	return 0;
}
