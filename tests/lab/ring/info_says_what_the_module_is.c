// SPDX-License-Identifier: GPL-2.0-only
/* TL_IOC_INFO: the interface's version and bounds, as many bytes as the caller knows. */
#include "calls.h"
#include "ring.h"

int main(void)
{
	struct { struct tl_info info; char beyond[16]; } reply;
	unsigned int wrappable = 0;
	int fd = device_open();

	memset(&reply, 0x55, sizeof(reply));
	reply.info.size = sizeof(reply.info);
	CHECK_EQ(sys(SYS_ioctl, fd, TL_IOC_INFO, &reply), 0);
	CHECK_EQ(reply.info.size, sizeof(reply.info));
	CHECK_EQ(reply.info.abi, TL_ABI_VERSION);
	CHECK_EQ(reply.info.entries_max, TL_ENTRIES_MAX);
	for (size_t i = 0; i < CALLS_COUNT; i++)
		wrappable += calls[i].class != CALL_REFUSED;
	/* An older kernel has fewer calls than the table. */
	CHECK_WITHIN(reply.info.calls_allowed, 280, wrappable);
	CHECK(memchr(reply.info.version, '\0', sizeof(reply.info.version)));
	CHECK(reply.info.version[0] >= '0' && reply.info.version[0] <= '9');
	CHECK_EQ(reply.beyond[0], 0x55);

	/* A caller that knows more gets what there is, and is told how much that is. */
	reply.info.size = sizeof(reply);
	CHECK_EQ(sys(SYS_ioctl, fd, TL_IOC_INFO, &reply), 0);
	CHECK_EQ(reply.info.size, sizeof(reply.info));
	CHECK_EQ(reply.beyond[0], 0x55);

	/* One that knows less gets no byte more than it knows. */
	memset(&reply, 0x55, sizeof(reply));
	reply.info.size = 8;
	CHECK_EQ(sys(SYS_ioctl, fd, TL_IOC_INFO, &reply), 0);
	CHECK_EQ(reply.info.size, 8);
	CHECK_EQ(reply.info.abi, TL_ABI_VERSION);
	CHECK_EQ(reply.info.entries_max, 0x55555555);

	reply.info.size = 0;
	CHECK_EQ(sys(SYS_ioctl, fd, TL_IOC_INFO, &reply), -EINVAL);
	CHECK_EQ(sys(SYS_ioctl, fd, TL_IOC_INFO, NULL), -EFAULT);
	CHECK_EQ(sys(SYS_ioctl, fd, TL_IOC_INFO, 0xffff888000000000), -EFAULT);
	return 0;
}
