// SPDX-License-Identifier: GPL-2.0-only
/* A number that the kernel does not have is -ENOSYS, wherever it lies; nothing is executed. */
#include "ring.h"

int main(void)
{
	static const uint32_t unknown[] = {
		340, 400, 423, 1000, 4095, 65536, 0x40000000 | SYS_read, 0x7fffffff, 0x80000000,
		0xffffffff,
	};
	struct ring ring = ring_open(1);
	struct tl_stats stats;

	for (unsigned int i = 0; i < sizeof(unknown) / sizeof(*unknown); i++)
		CHECK_EQ(batch_call(&ring, unknown[i]), -ENOSYS);
	stats = ring_stats(&ring);
	CHECK_EQ(stats.executed, 0);
	CHECK_EQ(stats.refused, sizeof(unknown) / sizeof(*unknown));
	return 0;
}
