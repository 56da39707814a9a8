// SPDX-License-Identifier: GPL-2.0-only
/* A filter on an argument decides by the request's argument, not by that of lseek(2). */
#include "filter.h"
#include "ring.h"

int main(void)
{
	struct ring ring = ring_open(4);
	int allowed = MUST(open("/dev/null", O_WRONLY)), denied[2];

	MUST(pipe2(denied, O_NONBLOCK));
	filter_install(SYS_write, (uint32_t)denied[1], SECCOMP_RET_ERRNO | EPERM, 0);
	ring_put(&ring, 0, SYS_write, allowed, "ok", 2);
	ring_put(&ring, 1, SYS_write, denied[1], "no", 2);
	ring_put(&ring, 2, SYS_write, allowed, "yes", 3);
	CHECK_EQ(ring_batch(&ring, 0, 3), 3);
	CHECK_DONE(&ring, 0, 2);
	CHECK_DONE(&ring, 1, -EPERM);
	CHECK_DONE(&ring, 2, 3);
	CHECK_EQ(sys(SYS_read, denied[0], &ring, 1), -EAGAIN);
	return 0;
}
