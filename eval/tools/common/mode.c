// SPDX-License-Identifier: GPL-2.0-only
/*
 * See mode.h. A table of all switched processes is read to find one: the module has no request for
 * a single process.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "measure.h"
#include "mode.h"

#define PROCESSES_MAX 64	/* more switched processes than any workload has */

int mode_open(const char **why)
{
	static char text[96];
	struct tl_supervisor info = { .size = sizeof(info) };
	int fd = open("/dev/trapless", O_RDWR | O_CLOEXEC);

	*why = text;
	if (fd < 0) {
		snprintf(text, sizeof(text), "no module: /dev/trapless: %s", strerror(errno));
		return -1;
	}
	if (ioctl(fd, TL_IOC_SUPERVISOR, &info))
		snprintf(text, sizeof(text), "a module without supervisor mode: %s",
			 strerror(errno));
	else if (info.refusals)
		snprintf(text, sizeof(text), "refused by the module, reason %d (enum tl_refusal)",
			 __builtin_ctzll(info.refusals));
	else
		return fd;
	close(fd);
	return -1;
}

void mode_switch(int fd, pid_t pid, enum tl_mode mode, unsigned int flags)
{
	struct tl_switch request = {
		.size = sizeof(request), .mode = mode, .pid = pid, .flags = flags,
	};

	if (ioctl(fd, TL_IOC_SWITCH, &request))
		measure_fail("process %d could not be switched to mode %d: %s, refusal %u",
			     (int)pid, (int)mode, strerror(errno), request.refusal);
}

static struct tl_processes list(int fd, struct tl_process *entries)
{
	struct tl_processes request = {
		.size = sizeof(request), .entry_size = sizeof(*entries), .count = PROCESSES_MAX,
		.entries = (uint64_t)(uintptr_t)entries,
	};

	if (ioctl(fd, TL_IOC_PROCESSES, &request))
		measure_fail("the module does not list its processes: %s", strerror(errno));
	if (request.total > PROCESSES_MAX)
		measure_fail("%u switched processes, where at most %d were made", request.total,
			     PROCESSES_MAX);
	return request;
}

static void find(int fd, pid_t pid, struct tl_process *counts)
{
	struct tl_process entries[PROCESSES_MAX];
	struct tl_processes found = list(fd, entries);

	for (unsigned int i = 0; i < found.count; i++) {
		if (entries[i].pid == pid) {
			*counts = entries[i];
			return;
		}
	}
	memset(counts, 0, sizeof(*counts));	/* never switched: nothing was counted */
}

void mode_counts(int fd, pid_t pid, struct tl_process *counts)
{
	find(fd, pid ? pid : getpid(), counts);
}

void mode_counts_ended(int fd, struct tl_process *counts)
{
	find(fd, 0, counts);
}

unsigned int mode_processes(int fd)
{
	struct tl_supervisor info = { .size = sizeof(info) };

	if (ioctl(fd, TL_IOC_SUPERVISOR, &info))
		measure_fail("the module does not say what it can do: %s", strerror(errno));
	return info.processes;
}
