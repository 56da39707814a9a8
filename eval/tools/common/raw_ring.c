// SPDX-License-Identifier: GPL-2.0-only
/*
 * Opens and closes a raw ring.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "raw_ring.h"

int raw_ring_open(struct raw_ring *raw, unsigned int entries)
{
	struct tl_setup setup = { .size = sizeof(setup), .entries = entries };
	int fd = open(TL_DEVICE, O_RDWR | O_CLOEXEC), error;
	void *ring;

	if (fd < 0)
		return -errno;
	if (ioctl(fd, TL_IOC_SETUP, &setup)) {
		error = -errno;
		goto err_close;
	}
	ring = mmap(NULL, TL_RING_BYTES(entries), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (ring == MAP_FAILED) {
		error = -errno;
		goto err_close;
	}
	raw->batch = (struct tl_batch){
		.requests = ring, .first = ring, .next = ring,
		.end = (struct tl_request *)ring + entries,
	};
	raw->fd = fd;
	return 0;

err_close:
	close(fd);
	return error;
}

void raw_ring_close(struct raw_ring *raw)
{
	size_t entries = (size_t)(raw->batch.end - raw->batch.requests);

	munmap(raw->batch.requests, TL_RING_BYTES(entries));
	close(raw->fd);
}
