// SPDX-License-Identifier: GPL-2.0-only
/*
 * The attack: a pipe keeps a page of the ring after the ring has gone. Some kernels look at the
 * page tables alone when they take a reference to a page; others refuse the memory of devices.
 * Where the pipe has the page it must stay the pipe's: nobody else is given it.
 */
#include <fcntl.h>
#include <sys/uio.h>

#include "ring.h"

#define RINGS 64
#define MARK 0x5ea1

int main(void)
{
	struct ring ring = ring_open(4), others[RINGS];
	struct iovec part = { ring.requests[0].args, sizeof(uint64_t) };
	uint64_t read_back;
	int ends[2];
	long moved;

	MUST(pipe(ends));
	ring.requests[0].args[0] = MARK;
	moved = sys(SYS_vmsplice, ends[1], &part, 1, 0);
	if (moved != -EFAULT)
		CHECK_EQ(moved, sizeof(uint64_t));
	ring_close(&ring);
	for (int i = 0; i < RINGS; i++) {
		others[i] = ring_open(4);
		memset(others[i].requests, 0xff, sizeof(*others[i].requests));
	}
	if (moved > 0) {
		CHECK_EQ(sys(SYS_read, ends[0], &read_back, sizeof(read_back)), moved);
		CHECK_EQ(read_back, MARK);
	}
	for (int i = 0; i < RINGS; i++)
		ring_close(&others[i]);
	return 0;
}
