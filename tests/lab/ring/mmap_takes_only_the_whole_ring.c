// SPDX-License-Identifier: GPL-2.0-only
/* The ring is mapped whole, shared, readable and writable, from its beginning, or not at all. */
#include "ring.h"

#define ENTRIES 256u
#define RW (PROT_READ | PROT_WRITE)

static int fd;

static void refused(const char *what, size_t length, int protection, int flags, long offset)
{
	long result = sys(SYS_mmap, NULL, length, protection, flags, fd, offset);

	if (result != -EINVAL)
		FAIL("%s: mmap gives 0x%lx, expected -EINVAL", what, result);
}

int main(void)
{
	const size_t whole = TL_RING_BYTES(ENTRIES);
	struct tl_request *first, *second;

	fd = device_open();
	refused("before set-up", whole, RW, MAP_SHARED, 0);
	CHECK_EQ(device_setup(fd, ENTRIES, 0, 0), 0);
	refused("one page", 4096, RW, MAP_SHARED, 0);
	refused("a page less", whole - 4096, RW, MAP_SHARED, 0);
	refused("a page more", whole + 4096, RW, MAP_SHARED, 0);
	refused("1 GB", 1 << 30, RW, MAP_SHARED, 0);
	refused("second page", whole, RW, MAP_SHARED, 4096);
	refused("second page to the end", whole - 4096, RW, MAP_SHARED, 4096);
	refused("far offset", whole, RW, MAP_SHARED, 1L << 40);
	refused("highest offset", whole, RW, MAP_SHARED, 0x7ffffffffffff000);
	refused("private", whole, RW, MAP_PRIVATE, 0);
	refused("read-only", whole, PROT_READ, MAP_SHARED, 0);
	refused("no access", whole, PROT_NONE, MAP_SHARED, 0);
	refused("executable", whole, RW | PROT_EXEC, MAP_SHARED, 0);

	first = device_map(fd, ENTRIES);
	CHECK(!is_error(first));
	second = device_map(fd, ENTRIES);
	CHECK(!is_error(second));
	/* Both are the same memory, and stay when one of them and the descriptor have gone. */
	first[5].nr = 77;
	CHECK_EQ(second[5].nr, 77);
	CHECK_EQ(sys(SYS_munmap, first, whole), 0);
	CHECK_EQ(sys(SYS_close, fd), 0);
	CHECK_EQ(second[5].nr, 77);
	second[ENTRIES - 1].result = 1;
	return 0;
}
