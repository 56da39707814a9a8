// SPDX-License-Identifier: GPL-2.0-only
/*
 * The guest's end of the channel: finds the ivshmem device, maps it, moves bytes.
 *
 * This file owns the mapping and the doorbell. It maps the device's memory through sysfs and so
 * needs no driver: no module has to be loaded before the first byte is sent, and nothing depends on
 * the kernel's version.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <termios.h>
#include <unistd.h>

#include "channel.h"

#define PCI_DEVICES "/sys/bus/pci/devices"
#define PCI_VENDOR_REDHAT 0x1af4
#define PCI_DEVICE_IVSHMEM 0x1110
#ifdef __aarch64__
/* The card; its board has a port of another kind. Unlike a PC it tells memory from devices. */
#define DOORBELL "/dev/ttyS0"
#define MEMORY "resource2_wc"
#else
#define DOORBELL "/dev/ttyS1"
#define MEMORY "resource2"
#endif
#define PATH_BYTES 512

static struct channel *header;
static int doorbell = -1;

static long read_number(const char *device, const char *name)
{
	char path[PATH_BYTES], text[32];
	ssize_t got;
	int fd;

	snprintf(path, sizeof(path), PCI_DEVICES "/%s/%s", device, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	got = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (got <= 0)
		return -EIO;
	text[got] = '\0';
	return strtol(text, NULL, 0);
}

static int map_device(const char *device)
{
	char path[PATH_BYTES];
	void *memory;
	int fd;

	snprintf(path, sizeof(path), PCI_DEVICES "/%s/enable", device);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd >= 0) {
		/* Firmware usually has enabled it; if this fails, so does the magic test below. */
		if (write(fd, "1", 1) < 0)
			perror(path);
		close(fd);
	}
	snprintf(path, sizeof(path), PCI_DEVICES "/%s/" MEMORY, device);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	memory = mmap(NULL, CHANNEL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (memory == MAP_FAILED)
		return -errno;
	header = memory;
	if (header->magic != CHANNEL_MAGIC) {
		munmap(memory, CHANNEL_BYTES);
		header = NULL;
		return -EPROTO;
	}
	return 0;
}

static int find_and_map(void)
{
	struct dirent *entry;
	int err = -ENODEV;
	DIR *devices;

	devices = opendir(PCI_DEVICES);
	if (!devices)
		return -errno;
	while (err == -ENODEV && (entry = readdir(devices))) {
		if (read_number(entry->d_name, "vendor") == PCI_VENDOR_REDHAT &&
		    read_number(entry->d_name, "device") == PCI_DEVICE_IVSHMEM)
			err = map_device(entry->d_name);
	}
	closedir(devices);
	return err;
}

static int open_doorbell(void)
{
	struct termios raw;

	doorbell = open(DOORBELL, O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
	if (doorbell < 0)
		return -errno;
	if (tcgetattr(doorbell, &raw) < 0)
		return -errno;
	cfmakeraw(&raw);
	raw.c_cflag |= CLOCAL;
	if (tcsetattr(doorbell, TCSANOW, &raw) < 0)
		return -errno;
	return 0;
}

int channel_open(void)
{
	int err = find_and_map();

	return err ? err : open_doorbell();
}

int channel_doorbell(void)
{
	return doorbell;
}

struct channel *channel_header(void)
{
	return header;
}

void channel_answer(void)
{
	char rings[64];

	while (read(doorbell, rings, sizeof(rings)) > 0)
		;
}

static void ring_bell(void)
{
	/* A full queue of doorbells needs no other: EAGAIN is as good as success. */
	if (write(doorbell, "!", 1) < 0 && errno != EAGAIN)
		perror(DOORBELL);
}

void channel_set_phase(enum channel_phase phase)
{
	__atomic_store_n(&header->phase, phase, __ATOMIC_RELEASE);
	ring_bell();
}

size_t ring_waiting(const struct ring *ring)
{
	return __atomic_load_n(&ring->head, __ATOMIC_ACQUIRE) -
	       __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE);
}

size_t ring_space(const struct ring *ring)
{
	return ring->bytes - ring_waiting(ring);
}

/* The longest run of n bytes from position at that does not wrap. */
static size_t contiguous(const struct ring *ring, uint64_t at, size_t n)
{
	size_t to_end = ring->bytes - (at & (ring->bytes - 1));

	return n < to_end ? n : to_end;
}

static void *place(const struct ring *ring, uint64_t at)
{
	return (char *)header + ring->offset + (at & (ring->bytes - 1));
}

ssize_t ring_fill(struct ring *ring, int fd)
{
	uint64_t head = ring->head;
	ssize_t got = read(fd, place(ring, head), contiguous(ring, head, ring_space(ring)));

	if (got > 0) {
		__atomic_store_n(&ring->head, head + (uint64_t)got, __ATOMIC_RELEASE);
		ring_bell();
	}
	return got;
}

ssize_t ring_drain(struct ring *ring, int fd)
{
	uint64_t tail = ring->tail;
	ssize_t put = write(fd, place(ring, tail), contiguous(ring, tail, ring_waiting(ring)));

	if (put > 0) {
		__atomic_store_n(&ring->tail, tail + (uint64_t)put, __ATOMIC_RELEASE);
		ring_bell();
	}
	return put;
}
