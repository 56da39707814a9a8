// SPDX-License-Identifier: GPL-2.0-only
/* Waiters with different numbers in mind each wake when as few are left, and not before. */
#include "ring.h"

int main(void)
{
	static const unsigned int lefts[3] = { 2, 0, 1 };
	struct ring ring = worker_ring_open(4);
	struct caller waiters[3];
	struct worker workers[3] = { 0 };
	int pipes[3][2];
	char byte;

	for (unsigned int i = 0; i < 3; i++) {
		MUST(pipe(pipes[i]));
		ring_queue(&ring, i, SYS_read, pipes[i][0], &byte, 1);
		worker_start(&workers[i], &ring);
	}
	CHECK_EQ(ring_wait(&ring, 3, 3), 3);
	for (int i = 0; i < 3; i++)
		caller_start(&waiters[i], &ring, TL_WAIT(0, lefts[i]), TL_ENTER_WAIT);
	for (unsigned int finished = 1; finished <= 3; finished++) {
		unsigned int left = 3 - finished;

		CHECK_EQ(write(pipes[finished - 1][1], "x", 1), 1);
		for (int i = 0; i < 3; i++)
			if (lefts[i] == left)
				CHECK_EQ(caller_join(&waiters[i]), left);
		for (int i = 0; i < 3; i++)
			if (lefts[i] < left)
				CHECK(!__atomic_load_n(&waiters[i].returned, __ATOMIC_ACQUIRE));
	}
	workers_end(&ring, workers, 3);
	return 0;
}
