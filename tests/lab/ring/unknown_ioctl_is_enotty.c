// SPDX-License-Identifier: GPL-2.0-only
/* Commands that the device does not have are -ENOTTY, those of a wrong direction included. */
#include "ring.h"

int main(void)
{
	static const unsigned long unknown[] = {
		_IO(TL_IOC_MAGIC, 0), _IO(TL_IOC_MAGIC, 1), _IO(TL_IOC_MAGIC, 2),
		_IO(TL_IOC_MAGIC, 6), _IO(TL_IOC_MAGIC, 0xff), _IO('T', 4),
		_IOWR(TL_IOC_MAGIC, 4, struct tl_info), _IOR(TL_IOC_MAGIC, 3, struct tl_stats),
		_IOW(TL_IOC_MAGIC, 1, struct tl_info), 0xffffffff, 0x80000000,
	};
	struct ring ring = ring_open(4);

	for (unsigned int i = 0; i < sizeof(unknown) / sizeof(*unknown); i++) {
		long result = sys(SYS_ioctl, ring.fd, unknown[i], 0);

		if (result != -ENOTTY)
			FAIL("command 0x%lx: %ld, expected -ENOTTY", unknown[i], result);
	}
	CHECK_EQ(sys(SYS_read, ring.fd, &ring, 1), -EINVAL);
	CHECK_EQ(sys(SYS_write, ring.fd, &ring, 1), -EINVAL);
	return 0;
}
