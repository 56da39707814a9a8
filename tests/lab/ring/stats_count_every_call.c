// SPDX-License-Identifier: GPL-2.0-only
/*
 * TL_IOC_STATS counts crossings, calls made and calls refused, exactly. A program that knows a
 * shorter or longer structure has another number for it, and gets what it has room for.
 */
#include "ring.h"

int main(void)
{
	struct { struct tl_stats stats; char beyond[16]; } reply;
	struct ring ring = ring_open(8);
	struct tl_stats stats = ring_stats(&ring);

	CHECK_EQ(stats.crossings, 0);
	CHECK_EQ(stats.executed, 0);
	for (unsigned int i = 0; i < 10; i++) {
		ring_put(&ring, 0, SYS_getpid);
		ring_put(&ring, 1, SYS_execve);
		ring_put(&ring, 2, 0xffffffff);
		ring_put(&ring, 3, SYS_close, -1);	/* made, though it fails */
		CHECK_EQ(ring_batch(&ring, 0, 4), 4);
	}
	stats = ring_stats(&ring);
	CHECK_EQ(stats.size, sizeof(stats));
	CHECK_EQ(stats.crossings, 10);
	CHECK_EQ(stats.executed, 20);
	CHECK_EQ(stats.refused, 20);
	CHECK_EQ(stats.interrupted, 0);
	CHECK_EQ(stats.bypassed, 0);
	CHECK_EQ(stats.dropped, 0);

	memset(&reply, 0x55, sizeof(reply));
	reply.stats.size = 16;
	CHECK_EQ(sys(SYS_ioctl, ring.fd, TL_IOC_STATS, &reply), 0);
	CHECK_EQ(reply.stats.size, 16);
	CHECK_EQ(reply.stats.crossings, 10);
	CHECK_EQ(reply.stats.executed, 0x5555555555555555);
	CHECK_EQ(sys(SYS_ioctl, ring.fd, _IOWR(TL_IOC_MAGIC, 3, char[16]), &reply), 0);
	CHECK_EQ(reply.stats.size, 16);
	reply.stats.size = sizeof(reply);
	CHECK_EQ(sys(SYS_ioctl, ring.fd, _IOWR(TL_IOC_MAGIC, 3, reply), &reply), 0);
	CHECK_EQ(reply.stats.size, sizeof(reply.stats));
	CHECK_EQ(reply.stats.executed, 20);
	CHECK_EQ(reply.beyond[0], 0x55);
	reply.stats.size = 3;
	CHECK_EQ(sys(SYS_ioctl, ring.fd, TL_IOC_STATS, &reply), -EINVAL);
	CHECK_EQ(sys(SYS_ioctl, ring.fd, TL_IOC_STATS, NULL), -EFAULT);
	return 0;
}
