// SPDX-License-Identifier: GPL-2.0-only
/* The calls of a batch are made in the order of their slots: bytes written to a pipe tell. */
#include "ring.h"

#define CALLS 64u

int main(void)
{
	struct ring ring = ring_open(CALLS);
	char out[CALLS], in[CALLS + 1];
	int pipe_fd[2];

	MUST(pipe(pipe_fd));
	for (unsigned int slot = 0; slot < CALLS; slot++) {
		out[slot] = (char)('0' + slot);
		ring_put(&ring, slot, SYS_write, pipe_fd[1], &out[slot], 1);
	}
	CHECK_EQ(ring_batch(&ring, 0, CALLS), CALLS);
	CHECK_EQ(read(pipe_fd[0], in, sizeof(in)), CALLS);
	for (unsigned int slot = 0; slot < CALLS; slot++)
		CHECK_EQ(in[slot], out[slot]);
	return 0;
}
