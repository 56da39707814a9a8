// SPDX-License-Identifier: GPL-2.0-only
/*
 * Through the 32-bit gate the requests are still 64-bit calls: numbers, pointers and results
 * above 4 GB, and structures of the 64-bit interface.
 */
#include "int80.h"

#include <sys/stat.h>
#include <sys/uio.h>

int main(void)
{
	struct ring ring;
	struct iovec vector = { "abc", 3 };
	struct stat status = { 0 };
	int fd;

	int80_need();
	ring = ring_open(TL_ENTRIES_MAX);
	fd = MUST((int)syscall(SYS_memfd_create, "int80", 0));
	ring_put(&ring, 0, SYS_mmap, NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ring_put(&ring, 1, SYS_writev, fd, &vector, 1);
	ring_put(&ring, 2, SYS_ftruncate, fd, 5L << 32);
	ring_put(&ring, 3, SYS_fstat, fd, &status);
	ring_put(&ring, 4, SYS_getppid);
	CHECK_EQ(ring_batch_int80(&ring, 0, 5), 5);
	CHECK(ring_result(&ring, 0) > (long)UINT32_MAX);
	CHECK_DONE(&ring, 1, 3);
	CHECK_DONE(&ring, 2, 0);
	CHECK_DONE(&ring, 3, 0);
	CHECK_EQ(status.st_size, 5L << 32);
	CHECK_DONE(&ring, 4, getppid());

	/* The largest argument still fits 31 bits. */
	for (unsigned int slot = 0; slot < TL_ENTRIES_MAX; slot++)
		ring_put(&ring, slot, SYS_getpid);
	CHECK_EQ(ring_batch_int80(&ring, TL_ENTRIES_MAX - 1, TL_ENTRIES_MAX), TL_ENTRIES_MAX);
	CHECK_EQ(ring_batch_int80(&ring, TL_ENTRIES_MAX, 1), -EINVAL);
	CHECK_EQ(ring_stats(&ring).executed, TL_ENTRIES_MAX + 5);
	/* Plain calls by either gate are what they were. */
	CHECK_EQ(int80(INT80_GETPID, 0, 0, 0), getpid());
	CHECK_EQ(sys(SYS_getpid), getpid());
	return 0;
}
