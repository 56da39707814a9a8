// SPDX-License-Identifier: GPL-2.0-only
/*
 * device.c - see device.h. It speaks to the module by ioctl, as any program could.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "device.h"
#include "measure.h"

#define PROCESSES_MAX 256u	/* switched at once; an experiment has a handful */

/* What the module says of itself, and of the processes that have ended. */
struct totals {
	struct tl_supervisor now;
	uint64_t ended, direct, worked, left, kernel;
	uint64_t demotions[TL_DEMOTIONS];
};

static int device = -1;

bool device_open(const char **reason)
{
	static char text[64];
	struct totals totals = { .now.size = sizeof(totals) };

	device = open(TL_DEVICE, O_RDWR | O_CLOEXEC);
	if (device < 0 || ioctl(device, TL_IOC_SUPERVISOR, &totals) < 0)
		snprintf(text, sizeof(text), "%s: %s", TL_DEVICE, strerror(errno));
	else if (totals.now.refusals)
		snprintf(text, sizeof(text), "refused: %#llx",
			 (unsigned long long)totals.now.refusals);
	else if (totals.now.size < sizeof(totals))
		snprintf(text, sizeof(text), "the module does not count ended processes");
	else
		return true;
	*reason = text;
	return false;
}

void device_switch(pid_t pid, enum tl_mode mode, unsigned int flags)
{
	struct tl_switch request = {
		.size = sizeof(request),
		.mode = mode,
		.pid = pid,
		.flags = mode == TL_MODE_SUPERVISOR ? flags : 0,
	};

	if (ioctl(device, TL_IOC_SWITCH, &request) < 0)
		measure_fail("process %d cannot be switched: %s (refusal %u)", pid,
			     strerror(errno), request.refusal);
}

struct calls device_calls_of_ended(void)
{
	struct totals totals = { .now.size = sizeof(totals) };
	struct calls calls;

	if (ioctl(device, TL_IOC_SUPERVISOR, &totals) < 0)
		measure_fail("cannot read the counts of calls: %s", strerror(errno));
	calls = (struct calls){ totals.direct, totals.worked, totals.left, totals.kernel, { 0 } };
	memcpy(calls.demotions, totals.demotions, sizeof(calls.demotions));
	return calls;
}

struct calls device_calls_of(pid_t pid)
{
	struct tl_process *entries = calloc(PROCESSES_MAX, sizeof(*entries));
	struct tl_processes request = {
		.size = sizeof(request),
		.entry_size = sizeof(*entries),
		.count = PROCESSES_MAX,
		.entries = (uintptr_t)entries,
	};
	struct calls calls = { 0 };

	if (!entries || ioctl(device, TL_IOC_PROCESSES, &request) < 0)
		measure_fail("cannot read the list of processes: %s", strerror(errno));
	for (unsigned int i = 0; i < request.count; i++) {
		const struct tl_process *entry = &entries[i];

		if (entry->pid != pid)
			continue;
		calls = (struct calls){ entry->calls_direct, entry->calls_worked,
					entry->calls_left, entry->calls_kernel, { 0 } };
		memcpy(calls.demotions, entry->demotions, sizeof(calls.demotions));
	}
	free(entries);
	return calls;
}

void calls_add(struct calls *sum, const struct calls *more)
{
	sum->direct += more->direct;
	sum->worked += more->worked;
	sum->left += more->left;
	sum->kernel += more->kernel;
	for (int i = 0; i < TL_DEMOTIONS; i++)
		sum->demotions[i] += more->demotions[i];
}

struct calls calls_difference(const struct calls *end, const struct calls *begin)
{
	struct calls result = { end->direct - begin->direct, end->worked - begin->worked,
				end->left - begin->left, end->kernel - begin->kernel, { 0 } };

	for (int i = 0; i < TL_DEMOTIONS; i++)
		result.demotions[i] = end->demotions[i] - begin->demotions[i];
	return result;
}
