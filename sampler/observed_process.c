// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Reads the memory of a process on this machine without stopping it. It owns the check of the right
 * to read it (the kernel's, as for a debugger), and the check that the process is still the same.
 * Addresses are the process's own.
 */
#include "source.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define USER_ADDRESSES (1ull << 56)	/* with five levels of page tables */

struct process {
	pid_t pid;
	int pidfd;	/* readable once the process has ended: its number may be another's then */
};

static int process_check(struct source *source)
{
	const struct process *process = source->state;
	struct pollfd end = { .fd = process->pidfd, .events = POLLIN };

	return poll(&end, 1, 0) == 0 ? 0 : -ENODEV;
}

static int process_read(struct source *source, uint64_t address, void *into, size_t length)
{
	const struct process *process = source->state;
	struct iovec local = { .iov_base = into, .iov_len = length };
	struct iovec remote = { .iov_base = (void *)(uintptr_t)address, .iov_len = length };
	ssize_t got = process_vm_readv(process->pid, &local, 1, &remote, 1, 0);

	if (got == (ssize_t)length)
		return 0;
	if (got < 0 && (errno == ESRCH || process_check(source)))
		return -ENODEV;
	return -EFAULT;
}

static void process_close(struct source *source)
{
	struct process *process = source->state;

	if (process->pidfd >= 0)
		close(process->pidfd);
	free(process);
}

/* A read of no bytes succeeds without the right to read: this reads a byte that is not mapped. */
static int may_read(pid_t pid, char *error)
{
	char byte;
	struct iovec local = { .iov_base = &byte, .iov_len = 1 };
	struct iovec remote = { .iov_base = NULL, .iov_len = 1 };

	if (process_vm_readv(pid, &local, 1, &remote, 1, 0) >= 0 || errno == EFAULT)
		return 0;
	if (errno == EPERM)
		return source_fail(error, -EPERM, "process %d may not be read: it is another "
				   "user's, or kernel.yama.ptrace_scope forbids it (CAP_SYS_PTRACE "
				   "allows it)", pid);
	return source_fail(error, -errno, "process %d: %m", pid);
}

static int process_open(struct source *source, const char *rest, char *error)
{
	struct process *process = calloc(1, sizeof(*process));
	char *end;
	long pid;
	int status;

	if (!process)
		return source_fail(error, -ENOMEM, "out of memory");
	process->pidfd = -1;
	source->state = process;
	source->size = USER_ADDRESSES;
	errno = 0;
	pid = strtol(rest, &end, 10);
	process->pid = (pid_t)pid;
	if (errno || end == rest || *end || pid <= 0 || process->pid != pid) {
		status = source_fail(error, -EINVAL, "'%s' is not the number of a process", rest);
	} else {
		process->pidfd = (int)syscall(SYS_pidfd_open, process->pid, 0);
		status = process->pidfd < 0 ?
			source_fail(error, -errno, "process %ld: %m", pid) :
			may_read(process->pid, error);
	}
	if (status)
		source_close(source);
	return status;
}

const struct source_kind source_process = {
	.name = "process",
	.form = "process:PID",
	.open = process_open,
	.read = process_read,
	.check = process_check,
	.close = process_close,
};
