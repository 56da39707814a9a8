// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * supervisor.c - switching processes to supervisor mode and back. It owns the descriptor of the
 * device that these functions share; what a switch does is the module's. The texts of refusals are
 * rows of linux/trapless_refusals.h.
 *
 * The descriptor is opened by the first call and kept, close-on-exec: a program that switches
 * itself around a busy phase then pays for one ioctl, not for open and close as well. The module
 * asks who calls, never who opened, so that a child may use what it inherited. A program that
 * closes all descriptors closes this one too, and its number may since belong to another file:
 * EBADF or ENOTTY, upon which another is opened and the number forgotten. It is never closed here.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))

/*
 * The descriptor plus 1 (0: none yet) in the lower half; the upper half counts how often it was
 * replaced, since a new one often has the number of one that was closed. Threads replace it by
 * compare-and-exchange only, so that of two that open it at a time one closes its own again. It
 * publishes no memory: relaxed.
 */
static uint64_t device;

static int device_number(uint64_t value)
{
	return (int)(uint32_t)value - 1;
}

/* Opens the device of a module that knows supervisor mode. */
static int device_open(void)
{
	struct tl_supervisor info = { .size = sizeof(info) };
	int saved = errno, fd = open(TL_DEVICE, O_RDWR | O_CLOEXEC), result;

	if (fd < 0) {
		result = errno == ENOENT || errno == ENXIO ? -ENODEV : -errno;
		errno = saved;
		return result;
	}
	result = tl_device_ioctl(fd, TL_IOC_SUPERVISOR, &info);
	if (result) {
		close(fd);
		return result;
	}
	return fd;
}

/* A descriptor in place of `stale`: one opened now, unless another thread has been quicker. */
static int device_replace(uint64_t stale)
{
	uint64_t next;
	int fd = device_open();

	if (fd < 0)
		return fd;
	next = ((stale >> 32) + 1) << 32 | (uint32_t)(fd + 1);
	if (__atomic_compare_exchange_n(&device, &stale, next, false, __ATOMIC_RELAXED,
					__ATOMIC_RELAXED))
		return fd;
	close(fd);
	return device_number(stale); /* the quicker one's */
}

/* An ioctl on the kept descriptor; on a new one where that is no longer the device's. */
static int device_call(unsigned long request, void *argument)
{
	uint64_t kept = __atomic_load_n(&device, __ATOMIC_RELAXED);
	int fd = device_number(kept), result;

	if (fd >= 0) {
		result = tl_device_ioctl(fd, request, argument);
		if (result != -EBADF && result != -ENOTTY)
			return result;
	}
	fd = device_replace(kept);
	return fd < 0 ? fd : tl_device_ioctl(fd, request, argument);
}

int tl_switch(pid_t pid, enum tl_mode mode, unsigned int flags, enum tl_refusal *why)
{
	struct tl_switch request = {
		.size = sizeof(request),
		.mode = mode,
		.pid = pid,
		.flags = flags,
		.refusal = TL_REFUSED_NONE,
	};
	int result = device_call(TL_IOC_SWITCH, &request);

	if (why)
		*why = (enum tl_refusal)request.refusal;
	return result;
}

static int switch_to(long pid, enum tl_mode mode)
{
	if (pid < 0 || pid > INT_MAX)
		return -ESRCH;
	return tl_switch((pid_t)pid, mode, 0, NULL);
}

int switch_supervisor(long pid)
{
	return switch_to(pid, TL_MODE_SUPERVISOR);
}

int switch_user(long pid)
{
	return switch_to(pid, TL_MODE_USER);
}

int tl_supervisor(struct tl_supervisor *info)
{
	return device_call(TL_IOC_SUPERVISOR, info);
}

int tl_process_list(struct tl_process *entries, unsigned int n, size_t entry_bytes)
{
	struct tl_processes request = {
		.size = sizeof(request),
		.entry_size = (uint32_t)entry_bytes,
		.count = n,
		.entries = (uint64_t)(uintptr_t)entries,
	};
	int result = device_call(TL_IOC_PROCESSES, &request);

	if (result < 0)
		return result;
	if (n > request.total)
		n = request.total;
	if (n > request.count) /* the module lists so many at a time and no more */
		memset((char *)entries + request.count * entry_bytes, 0,
		       (n - request.count) * entry_bytes);
	return (int)request.total;
}

static const char *const refusals[] = {
#define TL_REFUSAL(name, code, title, reason, remedy) [code] = reason,
#include <linux/trapless_refusals.h>
#undef TL_REFUSAL
	[TL_REFUSED_NONE] = "not refused",
};

const char *tl_refusal_text(enum tl_refusal why)
{
	const char *text = NULL;

	if ((unsigned int)why < ARRAY_SIZE(refusals))
		text = refusals[why];
	return text ? text : "a reason that this library does not know";
}
