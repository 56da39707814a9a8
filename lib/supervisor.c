// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * supervisor.c - switches processes to supervisor mode and back (running-mode-switch, Table 1). It
 * owns the descriptor of the device that these functions share, and the texts of refusals. The
 * module owns the effect of a switch.
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
#include <fcntl.h>
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

/* Word for word the reasons of trapless/refusals.py; a test holds the two equal. */
static const char *const refusals[] = {
	[TL_REFUSED_PARAMETER] = "the module was loaded without supervisor=1",
	[TL_REFUSED_CONFIG] = "the kernel was built without something that supervisor mode takes",
	[TL_REFUSED_SYMBOL] = "the kernel lacks a function that supervisor mode takes",
	[TL_REFUSED_PTI] =
		"page-table isolation is on: under a program's own tables the kernel is "
		"not mapped",
	[TL_REFUSED_FRED] = "the processor delivers events by FRED, not through the IDT",
	[TL_REFUSED_LASS] = "LASS is on: supervisor mode cannot execute a program's code",
	[TL_REFUSED_IBT] =
		"the kernel tracks indirect branches (IBT), and a program's code does "
		"not bear its marks",
	[TL_REFUSED_SHSTK] = "programs may use shadow stacks, and each privilege level has its own",
	[TL_REFUSED_IBRS] =
		"the kernel sets IBRS at each entry, and a call in supervisor mode "
		"makes none",
	[TL_REFUSED_CALL_DEPTH] =
		"the kernel accounts call depth from each entry, and a call in "
		"supervisor mode makes none",
	[TL_REFUSED_XEN] = "the kernel is a Xen PV guest: it is not in supervisor mode itself",
	[TL_REFUSED_CONFIDENTIAL] =
		"the machine is a confidential guest (SEV-ES, TDX), whose exceptions "
		"the entry code of the kernel handles itself",
	[TL_REFUSED_CONTEXT] =
		"context tracking is on (nohz_full): the kernel must see each "
		"transition",
	[TL_REFUSED_IST] = "the interrupt stack that the module needs is in use",
	[TL_REFUSED_ENTRY] =
		"MSR_LSTAR or the IDT is not the kernel's own: another module has "
		"changed it",
	[TL_REFUSED_LOCKDOWN] =
		"the kernel is locked down: what supervisor mode is, lockdown forbids",
	[TL_REFUSED_NOT_CAPABLE] = "the caller lacks CAP_SYS_RAWIO or CAP_SYS_MODULE",
	[TL_REFUSED_OTHER_USER] =
		"the process is another user's, and the caller lacks CAP_SYS_PTRACE",
	[TL_REFUSED_PRIVILEGED] =
		"the process is set-user-ID: its real, effective and saved IDs differ",
	[TL_REFUSED_CONFINED] =
		"the process is confined by seccomp, which a process in supervisor mode "
		"could undo",
	[TL_REFUSED_COMPAT] = "the process is a 32-bit one",
	[TL_REFUSED_KERNEL_THREAD] = "it is a kernel thread, or about to exit",
	[TL_REFUSED_VCPU] =
		"the process runs a virtual machine (KVM), which changes what "
		"supervisor mode depends on",
	[TL_REFUSED_NONE] = "not refused",
};

const char *tl_refusal_text(enum tl_refusal why)
{
	const char *text = NULL;

	if ((unsigned int)why < ARRAY_SIZE(refusals))
		text = refusals[why];
	return text ? text : "a reason that this library does not know";
}
