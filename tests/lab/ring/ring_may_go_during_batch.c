// SPDX-License-Identifier: GPL-2.0-only
/* Another thread closes the descriptor and unmaps the ring while a batch sleeps: it goes on. */
#include "ring.h"

int main(void)
{
	struct ring ring = ring_open(8);
	struct caller caller;
	int pipe_fd[2];
	char byte;

	MUST(pipe(pipe_fd));
	for (unsigned int slot = 0; slot < 8; slot++)
		ring_put(&ring, slot, SYS_read, pipe_fd[0], &byte, 1);
	caller_start(&caller, &ring, 8, TL_ENTER_BATCH);
	ring_close(&ring);
	CHECK_EQ(write(pipe_fd[1], "12345678", 8), 8);
	CHECK_EQ(caller_join(&caller), 8);
	return 0;
}
