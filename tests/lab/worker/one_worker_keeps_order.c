// SPDX-License-Identifier: GPL-2.0-only
/* One worker serves in the order of submit[], whatever the slots' numbers, over many rounds. */
#include "ring.h"

#define ENTRIES 8u
#define ROUNDS 100u

int main(void)
{
	struct ring ring = worker_ring_open(ENTRIES);
	struct worker worker = { 0 };
	char out[ENTRIES], in[ENTRIES + 1];
	int pipe_fd[2];

	MUST(pipe(pipe_fd));
	worker_start(&worker, &ring);
	for (unsigned int round = 0; round < ROUNDS; round++) {
		unsigned int n = 1 + round % ENTRIES;

		for (unsigned int i = 0; i < n; i++) {
			unsigned int slot = (i * 3 + round) % ENTRIES;

			out[i] = (char)('a' + i);
			ring_queue(&ring, slot, SYS_write, pipe_fd[1], &out[i], 1);
		}
		CHECK_EQ(ring_wait(&ring, n, 0), 0);
		CHECK_EQ(read(pipe_fd[0], in, sizeof(in)), n);
		CHECK(!memcmp(in, out, n));
	}
	workers_end(&ring, &worker, 1);
	return 0;
}
