// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * The choice between the module and plain calls. It owns that choice (flags, environment, whether
 * the module is loaded), the set-up of a ring in the module, and the counts that both backends
 * report in one form. It does not own requests.
 */
#include "internal.h"

#include <errno.h>
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

_Static_assert(TL_SLOT_ERRORS * sizeof(struct tl_request) <= PAGE_BYTES_MAX,
	       "the errors stand before the ring");

/* Maps the ring, and before it memory of the process alone, whose end holds TL_SLOT_ERRORS. */
static int ring_map(struct tl_object_header *header)
{
	size_t bytes = PAGE_BYTES_MAX + header->ring_bytes;
	char *place = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int error;

	if (place == MAP_FAILED)
		return -errno;
	header->ring = mmap(place + PAGE_BYTES_MAX, header->ring_bytes, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_FIXED, header->fd, 0);
	if (header->ring != MAP_FAILED)
		return 0;
	error = errno;
	header->ring = NULL;
	munmap(place, bytes);
	return -error;
}

static int device_open(struct tl_object_header *header, const struct tl_setup *setup)
{
	struct tl_info info = { .size = sizeof(info) };
	struct tl_setup own = *setup;
	int result;

	header->fd = tl_device_open();
	if (header->fd < 0)
		return header->fd;
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
	result = ring_map(header);
	if (!result)
		return 0;

close_fd:
	close(header->fd);
	header->fd = -1;
	return result;
}

/* Why device_open() has failed, in words. */
static const char *device_reason(int error)
{
	switch (error) {
	case -ENOENT:
		return "the module is not loaded (" TL_DEVICE " is missing)";
	case -EACCES:
	case -EPERM:
		return "this process may not open " TL_DEVICE;
	case -EPROTO:
		return "the loaded module has another version of the interface than the library";
	case -ENOMEM:
		return "no memory is left, or the limit of locked memory is reached (ulimit -l)";
	case -EMFILE:
	case -ENFILE:
		return "no descriptor is left (ulimit -n)";
	case -ENODEV:
	case -ENXIO:
	case -ENOTTY:
		return "something else is in the place of " TL_DEVICE;
	default:
		return "a call that sets up the module has failed, as in a sandbox";
	}
}

int tl_backend_open(enum tl_backend *backend, struct tl_object_header *header,
		    const struct tl_setup *setup, unsigned int flags)
{
	int saved = errno, choice = choose(flags), result;

	if (choice < 0)
		return choice;
	*backend = TL_BACKEND_PLAIN;
	if (choice == CHOICE_PLAIN) {
		header->reason = flags ? "the program asks for plain calls (TL_PLAIN)" :
					 "the environment asks for plain calls (TRAPLESS_BACKEND)";
		return 0;
	}
	result = device_open(header, setup);
	errno = saved;
	if (result)
		header->reason = device_reason(result);
	else
		*backend = TL_BACKEND_MODULE;
	/* Whatever the reason is, the library can do what the module would have done. */
	return choice == CHOICE_AUTO ? 0 : result;
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

int tl_stats_module(int fd, const void *ring, struct tl_stats *stats,
		    const struct tl_stats *extra)
{
	struct tl_stats counts = { .size = sizeof(counts) };
	int result = tl_ring_check(fd, ring);

	if (!result)
		result = tl_device_ioctl(fd, TL_IOC_STATS, &counts);
	if (result < 0)
		return result;
#define TL_COUNT(member, offset) counts.member += extra->member;
#include <linux/trapless_fields.h>
	return tl_stats_copy(stats, &counts);
}
