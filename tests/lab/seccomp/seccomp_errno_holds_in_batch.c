// SPDX-License-Identifier: GPL-2.0-only
/* A filter that answers with an errno answers a batched call as it does a plain one. */
#include "filter.h"
#include "ring.h"

int main(void)
{
	struct ring ring = ring_open(4);

	filter_call(SYS_getppid, SECCOMP_RET_ERRNO | EACCES);
	CHECK_EQ(sys(SYS_getppid), -EACCES);
	ring_put(&ring, 0, SYS_getpid);
	ring_put(&ring, 1, SYS_getppid);
	ring_put(&ring, 2, SYS_getpid);
	CHECK_EQ(ring_batch(&ring, 0, 3), 3);
	CHECK_DONE(&ring, 0, getpid());
	CHECK_DONE(&ring, 1, -EACCES);
	CHECK_DONE(&ring, 2, getpid());
	/* The saved registers are restored: the next batch and call work. */
	CHECK_EQ(ring_batch(&ring, 1, 2), 2);
	CHECK_EQ(sys(SYS_getpid), getpid());
	return 0;
}
