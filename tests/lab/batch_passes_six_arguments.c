/* SPDX-License-Identifier: GPL-2.0-only */
/* All six arguments arrive: a mapping at an offset and a copy between address spaces need them. */
#include <sys/uio.h>

#include "ring.h"

int main(void)
{
	struct ring ring = ring_open(2);
	char page[4096], target[3] = "";
	struct iovec local = { target, 3 }, remote = { page, 3 };
	const char *map;
	int fd = MUST((int)syscall(SYS_memfd_create, "six", 0));

	memset(page, 'a', sizeof(page));
	MUST(write(fd, page, sizeof(page)));
	memset(page, 'b', sizeof(page));
	MUST(write(fd, page, sizeof(page)));

	ring_put(&ring, 0, SYS_mmap, NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 4096);
	ring_put(&ring, 1, SYS_process_vm_readv, getpid(), &local, 1, &remote, 1, 0);
	CHECK_EQ(ring_batch(&ring, 0, 2), 2);

	map = (const char *)ring_result(&ring, 0);
	CHECK(!is_error(map));
	CHECK_EQ(map[0], 'b');
	CHECK_DONE(&ring, 1, 3);
	CHECK(!memcmp(target, "bbb", 3));

	/* The sixth argument of process_vm_readv is flags: anything but 0 is refused. */
	CHECK_EQ(batch_call(&ring, SYS_process_vm_readv, getpid(), &local, 1, &remote, 1, 1),
		 -EINVAL);
	return 0;
}
