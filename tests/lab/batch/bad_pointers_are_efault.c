// SPDX-License-Identifier: GPL-2.0-only
/* A request's pointers are user pointers: kernel, null and non-canonical addresses are -EFAULT. */
#include "ring.h"

int main(void)
{
	static const unsigned long bad[] = {
		0, 8, 0xffff888000000000UL, 0xffffffff81000000UL, 0xffffffffff600000UL,
		0x8000000000000000UL, 0x0000800000000000UL, 0x00007ffffffff000UL, ~0UL - 7,
	};
	struct ring ring = ring_open(2);
	int pipe_fd[2];

	MUST(pipe(pipe_fd));
	for (unsigned int i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		ring_put(&ring, 0, SYS_clock_gettime, CLOCK_MONOTONIC, bad[i]);
		ring_put(&ring, 1, SYS_pipe2, bad[i], 0);
		CHECK_EQ(ring_batch(&ring, 0, 2), 2);
		CHECK_DONE(&ring, 0, -EFAULT);
		CHECK_DONE(&ring, 1, -EFAULT);
	}
	/* A result may land in the ring itself: it is the program's memory like any other. */
	CHECK_EQ(batch_call(&ring, SYS_write, pipe_fd[1], "ring", 4), 4);
	CHECK_EQ(batch_call(&ring, SYS_read, pipe_fd[0], ring.requests[1].args, 4), 4);
	CHECK(!memcmp(ring.requests[1].args, "ring", 4));
	return 0;
}
