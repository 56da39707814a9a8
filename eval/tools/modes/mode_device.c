// SPDX-License-Identifier: GPL-2.0-only
/*
 * See mode_device.h. It speaks to the module through libtrapless, as any program could.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trapless.h>

#include "mode_device.h"
#include "measure.h"

#define PROCESSES_MAX 256	/* switched at once; an experiment has a handful */
#define ENDED 0			/* the ID under which the module lists those that have ended */

bool device_offers(const char **reason)
{
	struct tl_supervisor offer = { .size = sizeof(offer) };
	int err = tl_supervisor_get(&offer);

	*reason = "";
	if (err)
		*reason = strerror(-err);
	else if (offer.refusals)
		*reason = tl_refusal_text((enum tl_refusal)__builtin_ctzll(offer.refusals));
	return !err && !offer.refusals;
}

void device_switch(pid_t pid, enum tl_mode mode, unsigned int flags)
{
	enum tl_refusal why;
	int err = tl_switch_mode(pid, mode, mode == TL_MODE_SUPERVISOR ? flags : 0, &why);

	if (err)
		measure_fail("process %d cannot be switched: %s: %s", pid, strerror(-err),
			     tl_refusal_text(why));
}

struct calls device_calls_of(pid_t pid)
{
	struct tl_process *entries = calloc(PROCESSES_MAX, sizeof(*entries));
	int count = entries ? tl_process_list(entries, PROCESSES_MAX) : -1;
	struct calls calls = { 0 };

	if (count < 0 || count > PROCESSES_MAX)
		measure_fail("cannot read the list of switched processes: %d", count);
	for (int i = 0; i < count; i++) {
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

struct calls device_calls_of_ended(void)
{
	return device_calls_of(ENDED);
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
