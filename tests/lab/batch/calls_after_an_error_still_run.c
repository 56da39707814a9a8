// SPDX-License-Identifier: GPL-2.0-only
/* A call that fails says so in its own result and does not end the batch. */
#include "ring.h"

int main(void)
{
	struct ring ring = ring_open(8);

	ring_put(&ring, 0, SYS_read, -1, NULL, 1);
	ring_put(&ring, 1, SYS_openat, AT_FDCWD, "/does/not/exist", O_RDONLY);
	ring_put(&ring, 2, 100000);
	ring_put(&ring, 3, SYS_execve);
	ring_put(&ring, 4, SYS_getpid);
	CHECK_EQ(ring_batch(&ring, 0, 5), 5);
	CHECK_DONE(&ring, 0, -EBADF);
	CHECK_DONE(&ring, 1, -ENOENT);
	CHECK_DONE(&ring, 2, -ENOSYS);
	CHECK_DONE(&ring, 3, -EOPNOTSUPP);
	CHECK_DONE(&ring, 4, getpid());
	return 0;
}
