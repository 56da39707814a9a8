// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * The choice between the module and plain calls. It owns that choice (flags, environment, whether
 * the module is loaded), the set-up of a ring in the module, and the counts that both backends
 * report in one form. It does not own requests.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

enum choice { CHOICE_AUTO, CHOICE_PLAIN, CHOICE_MODULE };

static int choose(unsigned int flags)
{
	const char *name;

	if (flags & ~(TL_PLAIN | TL_MODULE) || flags == (TL_PLAIN | TL_MODULE))
		return -EINVAL;
	if (flags)
		return flags == TL_PLAIN ? CHOICE_PLAIN : CHOICE_MODULE;
	name = secure_getenv("TRAPLESS_BACKEND");
	if (!name || !*name || !strcmp(name, "auto"))
		return CHOICE_AUTO;
	if (!strcmp(name, "plain"))
		return CHOICE_PLAIN;
	if (!strcmp(name, "module"))
		return CHOICE_MODULE;
	return -EINVAL;
}

int tl_device_ioctl(int fd, unsigned long request, void *argument)
{
	int saved = errno, result = ioctl(fd, request, argument);

	if (result < 0) {
		result = -errno;
		errno = saved;
	}
	return result;
}

static int device_open(struct tl_object_header *header, const struct tl_setup *setup)
{
	struct tl_info info = { .size = sizeof(info) };
	struct tl_setup own = *setup;
	int result;

	header->fd = open(TL_DEVICE, O_RDWR | O_CLOEXEC);
	if (header->fd < 0)
		return -errno;
	result = tl_device_ioctl(header->fd, TL_IOC_INFO, &info);
	if (!result && info.abi != TL_ABI_VERSION)
		result = -EPROTO;
	if (!result)
		result = tl_device_ioctl(header->fd, TL_IOC_SETUP, &own);
	if (result)
		goto close_fd;

	header->ring_bytes = TL_RING_BYTES(own.entries);
	if (own.flags & TL_SETUP_COMPLETIONS)
		header->ring_bytes += TL_RING_COMPLETIONS_BYTES(own.entries);
	header->ring = mmap(NULL, header->ring_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
			    header->fd, 0);
	if (header->ring == MAP_FAILED) {
		result = -errno;
		header->ring = NULL;
		goto close_fd;
	}
	return 0;

close_fd:
	close(header->fd);
	header->fd = -1;
	return result;
}

/*
 * Whether the module is missing, or this user may not use it or has no locked memory left for a
 * ring: the library then makes the calls.
 */
static bool module_absent(int error)
{
	switch (error) {
	case -ENOENT:
	case -ENODEV:
	case -ENXIO:
	case -EACCES:
	case -EPERM:
	case -ENOTTY:
	case -EPROTO:
	case -ENOMEM:
		return true;
	default:
		return false;
	}
}

int tl_backend_open(enum tl_backend *backend, struct tl_object_header *header,
		    const struct tl_setup *setup, unsigned int flags)
{
	int saved = errno, choice = choose(flags), result;

	if (choice < 0)
		return choice;
	*backend = TL_BACKEND_PLAIN;
	if (choice == CHOICE_PLAIN)
		return 0;
	result = device_open(header, setup);
	errno = saved;
	if (!result)
		*backend = TL_BACKEND_MODULE;
	else if (choice == CHOICE_AUTO && module_absent(result))
		result = 0;
	return result;
}

int tl_stats_copy(struct tl_stats *stats, const struct tl_stats *counts)
{
	uint32_t size = stats->size;

	if (size < sizeof(stats->size))
		return -EINVAL;
	if (size > sizeof(*counts))
		size = sizeof(*counts);
	memcpy(stats, counts, size);
	stats->size = size;
	return 0;
}

int tl_stats_module(int fd, struct tl_stats *stats, const struct tl_stats *extra)
{
	struct tl_stats counts = { .size = sizeof(counts) };
	int result = tl_device_ioctl(fd, TL_IOC_STATS, &counts);

	if (result < 0)
		return result;
	counts.crossings += extra->crossings;
	counts.executed += extra->executed;
	counts.refused += extra->refused;
	counts.interrupted += extra->interrupted;
	counts.sleeps += extra->sleeps;
	counts.wakeups += extra->wakeups;
	return tl_stats_copy(stats, &counts);
}
