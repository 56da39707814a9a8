// SPDX-License-Identifier: GPL-2.0-only
/* All six arguments arrive: a mapping at an offset and a copy between files need them. */
#include "ring.h"

int main(void)
{
	struct ring ring = ring_open(2);
	static char page[65536];	/* the largest of any kernel */
	const char *map;
	long from = sizeof(page) - 96, to = 10;
	int fd = MUST((int)syscall(SYS_memfd_create, "six", 0));
	int copy = MUST((int)syscall(SYS_memfd_create, "copy", 0));

	memset(page, 'a', sizeof(page));
	MUST(write(fd, page, sizeof(page)));
	memset(page, 'b', sizeof(page));
	MUST(write(fd, page, sizeof(page)));

	ring_put(&ring, 0, SYS_mmap, NULL, 4096, PROT_READ, MAP_PRIVATE, fd, sizeof(page));
	ring_put(&ring, 1, SYS_copy_file_range, fd, &from, copy, &to, 100, 0);
	CHECK_EQ(ring_batch(&ring, 0, 2), 2);

	map = (const char *)ring_result(&ring, 0);
	CHECK(!is_error(map));
	CHECK_EQ(map[0], 'b');
	CHECK_DONE(&ring, 1, 100);
	CHECK_EQ(from, sizeof(page) + 4);
	CHECK_EQ(to, 110);
	CHECK_EQ(pread(copy, page, sizeof(page), 0), 110);
	CHECK_EQ(page[10], 'a');
	CHECK_EQ(page[109], 'b');

	/* The sixth argument of copy_file_range is flags: anything but 0 is refused. */
	CHECK_EQ(batch_call(&ring, SYS_copy_file_range, fd, &from, copy, &to, 1, 1), -EINVAL);
	return 0;
}
