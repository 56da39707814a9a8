// SPDX-License-Identifier: GPL-2.0-only
/* TL_IOC_SETUP checks every field, takes a larger structure of zeroes, and works once a file. */
#include "ring.h"

static const struct {
	const char *what;
	struct tl_setup setup;
	long want;
} cases[] = {
	{ "no entries", { .size = 32, .entries = 0 }, -EINVAL },
	{ "three entries", { .size = 32, .entries = 3 }, -EINVAL },
	{ "too many entries", { .size = 32, .entries = 2 * TL_ENTRIES_MAX }, -EINVAL },
	{ "2^31 entries", { .size = 32, .entries = 1u << 31 }, -EINVAL },
	{ "2^32 - 1 entries", { .size = 32, .entries = UINT32_MAX }, -EINVAL },
	{ "unknown flag", { .size = 32, .entries = 8, .flags = 2 }, -EINVAL },
	{ "all flags", { .size = 32, .entries = 8, .flags = UINT32_MAX }, -EINVAL },
	{ "long spin", { .size = 32, .entries = 8, .flags = TL_SETUP_WORKERS,
			 .spin_us = TL_SPIN_US_MAX + 1 }, -EINVAL },
	{ "endless spin", { .size = 32, .entries = 8, .flags = TL_SETUP_WORKERS,
			    .spin_us = UINT32_MAX }, -EINVAL },
	{ "first reserved", { .size = 32, .entries = 8, .reserved = { 1, 0 } }, -EINVAL },
	{ "second reserved", { .size = 32, .entries = 8, .reserved = { 0, 1ULL << 63 } },
	  -EINVAL },
	{ "size 0", { .size = 0, .entries = 8 }, -EINVAL },
	{ "size 31", { .size = 31, .entries = 8 }, -EINVAL },
	{ "size 2^32 - 1", { .size = UINT32_MAX, .entries = 8 }, -EINVAL },
};

int main(void)
{
	struct { struct tl_setup setup; uint64_t more[4]; } larger = {
		.setup = { .size = sizeof(larger), .entries = 8 },
	};
	int fd = device_open();

	for (unsigned int i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		long result = sys(SYS_ioctl, fd, TL_IOC_SETUP, &cases[i].setup);

		if (result != cases[i].want && !(cases[i].setup.size > 4096 && result == -E2BIG))
			FAIL("%s: %ld, expected %ld", cases[i].what, result, cases[i].want);
	}
	CHECK_EQ(sys(SYS_ioctl, fd, TL_IOC_SETUP, NULL), -EFAULT);
	CHECK_EQ(sys(SYS_ioctl, fd, TL_IOC_SETUP, 0xffff888000000000), -EFAULT);
	larger.more[3] = 1;
	CHECK_EQ(sys(SYS_ioctl, fd, TL_IOC_SETUP, &larger), -E2BIG);
	larger.more[3] = 0;
	CHECK_EQ(sys(SYS_ioctl, fd, TL_IOC_SETUP, &larger), 0);
	CHECK_EQ(device_setup(fd, 8, 0, 0), -EEXIST);
	CHECK_EQ(device_setup(fd, 8, TL_SETUP_WORKERS, 0), -EEXIST);
	for (unsigned int entries = 1; entries <= TL_ENTRIES_MAX; entries *= 2) {
		struct ring ring = ring_open(entries);

		ring_put(&ring, entries - 1, SYS_getpid);
		CHECK_EQ(ring_batch(&ring, entries - 1, 1), 1);
		CHECK_DONE(&ring, entries - 1, getpid());
		ring_close(&ring);
	}
	return 0;
}
