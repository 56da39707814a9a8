// SPDX-License-Identifier: GPL-2.0-only
/*
 * The ioctls of supervisor mode.
 *
 * init.c decides when to switch, and the launcher (trapless/supervisor/control.py) explains errors.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/trapless.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "supervised_command.h"

#define ENTRIES_FIRST 64 /* room of the first request; the next one has room for all */

/* Returns 0 or errno. */
static int ask(unsigned long request, void *argument)
{
	int fd = open(TL_DEVICE, O_RDWR | O_CLOEXEC), error = 0;

	if (fd < 0)
		return errno;
	if (ioctl(fd, request, argument) < 0)
		error = errno;
	close(fd);
	return error;
}

struct supervisor_answer supervisor_switch(pid_t pid, unsigned int flags)
{
	struct tl_switch request = {
		.size = sizeof(request),
		.mode = TL_MODE_SUPERVISOR,
		.pid = pid,
		.flags = flags,
		.refusal = TL_REFUSED_NONE,
	};
	int error = ask(TL_IOC_SWITCH, &request);

	return (struct supervisor_answer){ error, request.refusal };
}

/* The list has an entry for all processes that have ended, so the sum is complete. */
static void sum(struct supervisor_calls *calls, const struct tl_process *entries, size_t count)
{
	memset(calls, 0, sizeof(*calls));
	for (size_t i = 0; i < count; i++) {
		calls->direct += entries[i].calls_direct;
		calls->worked += entries[i].calls_worked;
		calls->left += entries[i].calls_left;
		calls->kernel += entries[i].calls_kernel;
	}
}

int supervisor_count(struct supervisor_calls *calls)
{
	struct tl_processes list = { .total = ENTRIES_FIRST };
	struct tl_process *entries = NULL;
	int error;

	do {
		uint32_t room = list.total + 1;

		free(entries);
		entries = calloc(room, sizeof(*entries));
		if (!entries)
			return -ENOMEM;
		list = (struct tl_processes){
			.size = sizeof(list),
			.entry_size = sizeof(*entries),
			.count = room,
			.entries = (uintptr_t)entries,
		};
		error = ask(TL_IOC_PROCESSES, &list);
	} while (!error && list.total > list.count);
	if (!error)
		sum(calls, entries, list.count);
	free(entries);
	return -error;
}
