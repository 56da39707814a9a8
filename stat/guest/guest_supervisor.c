// SPDX-License-Identifier: GPL-2.0-only
/*
 * Asks the module whether it offers supervisor mode, switches processes, and reads the module's
 * counts. It owns nothing of the counting by the model.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "guest_stat.h"

#define PROCESSES_MAX 1024

uint64_t supervisor_refusals(void)
{
	struct tl_supervisor offer = { .size = sizeof(offer) };

	return tl_supervisor_get(&offer) ? ~0ull : offer.refusals;
}

/* Returns whether the process was switched; one that is about to exit cannot be. */
bool supervisor_try(pid_t process, bool supervisor)
{
	enum tl_mode mode = supervisor ? TL_MODE_SUPERVISOR : TL_MODE_USER;
	unsigned int options = TL_SWITCH_EXEC | TL_SWITCH_CHILDREN | TL_SWITCH_ANY_USER;
	unsigned int flags = supervisor ? options : 0;
	enum tl_refusal why = TL_REFUSED_NONE;
	int error = tl_switch_mode(process, mode, flags, &why);

	if (error == -ESRCH || (error && why == TL_REFUSED_KERNEL_THREAD))
		return false;
	if (error)
		stat_fail("%s mode: %s: %s", supervisor ? "supervisor" : "user", strerror(-error),
			  tl_refusal_text(why));
	return true;
}

void supervisor_switch(pid_t process, bool supervisor)
{
	if (!supervisor_try(process, supervisor))
		stat_fail("process %d is about to exit: it cannot be switched", process);
}

void supervisor_read(struct supervisor_counts *counts)
{
	static struct tl_process entries[PROCESSES_MAX];
	int total = tl_process_list(entries, PROCESSES_MAX), i, cause;

	memset(counts, 0, sizeof(*counts));
	for (i = 0; i < total && i < PROCESSES_MAX; i++) {
#define ADD(way) counts->way += entries[i].calls_##way;
		STAT_CALLS(ADD)
#undef ADD
		for (cause = 0; cause < TL_DEMOTIONS; cause++)
			counts->demotions[cause] += entries[i].demotions[cause];
	}
}
