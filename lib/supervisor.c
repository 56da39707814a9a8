// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * Switches processes to supervisor mode and back (running-mode-switch, Table 1). It owns the
 * descriptor of the device that these functions share. The module owns the effect of a switch; the
 * texts of refusals are rows of linux/trapless_refusals.h.
 *
 * The first call opens the descriptor, close-on-exec, and it stays open, so that a program that
 * switches itself around a busy phase makes one ioctl(2) for each switch and no open(2) or
 * close(2). The module checks who calls and never who opened it, so a child may use the descriptor
 * that it has inherited. A program that closes all descriptors closes this one, too, and its number
 * may then belong to another file: EBADF or ENOTTY, upon which the library opens another descriptor
 * and forgets the number. It never closes a descriptor that has been in use.
 */
#include "internal.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))

/*
 * The lower half is the descriptor plus 1, and 0 before the first call. The upper half counts how
 * often the descriptor was replaced, because a new descriptor often has the number of a closed one.
 * Threads replace the value by compare-and-exchange only; of two threads that open the device at
 * the same time, one closes its descriptor again. The value publishes no memory, so accesses are
 * relaxed.
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
	int fd = tl_device_open(), result;

	if (fd == -ENOENT || fd == -ENXIO)
		return -ENODEV;
	if (fd < 0)
		return fd;
	result = tl_device_ioctl(fd, TL_IOC_SUPERVISOR, &info);
	if (result) {
		close(fd);
		return result;
	}
	return fd;
}

/* Returns a descriptor in place of `stale`: a new one, unless another thread has replaced it. */
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
	return device_number(stale); /* of the other thread */
}

/* Makes an ioctl on the shared descriptor, or on a new one if that is not the device's any more. */
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

int tl_switch_mode(pid_t pid, enum tl_mode mode, unsigned int flags, enum tl_refusal *why)
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
	return tl_switch_mode((pid_t)pid, mode, 0, NULL);
}

int tl_switch_supervisor(long pid)
{
	return switch_to(pid, TL_MODE_SUPERVISOR);
}

int tl_switch_user(long pid)
{
	return switch_to(pid, TL_MODE_USER);
}

int tl_supervisor_get(struct tl_supervisor *info)
{
	return device_call(TL_IOC_SUPERVISOR, info);
}

int tl_process_list_sized(struct tl_process *entries, unsigned int n, size_t entry_bytes)
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
	if (n > request.count) /* the module lists no more entries at a time */
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
