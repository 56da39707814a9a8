// SPDX-License-Identifier: GPL-2.0-only
/* A batch that begins near the end of the ring goes on at its start, and touches no other slot. */
#include "ring.h"

int main(void)
{
	struct ring ring = ring_open(8);
	char in[8] = "";
	int pipe_fd[2];

	MUST(pipe(pipe_fd));
	for (unsigned int slot = 0; slot < 8; slot++)
		ring_put(&ring, slot, SYS_write, pipe_fd[1], &"01234567"[slot], 1);
	CHECK_EQ(ring_batch(&ring, 6, 4), 4);
	CHECK_EQ(read(pipe_fd[0], in, sizeof(in)), 4);
	CHECK(!memcmp(in, "6701", 4));
	for (unsigned int slot = 2; slot < 6; slot++) {
		CHECK_EQ(ring_state(&ring, slot), TL_SUBMITTED);
		CHECK_EQ(ring_result(&ring, slot), 0x5eed);
	}
	CHECK_DONE(&ring, 6, 1);
	CHECK_DONE(&ring, 1, 1);
	return 0;
}
