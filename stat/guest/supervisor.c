/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Supervisor mode as the guest's program uses it: whether it is offered, the switch, and what the
 * module counted.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "stat.h"

#define PROCESSES_MAX 1024

uint64_t supervisor_refusals(void)
{
	struct tl_supervisor offer = { .size = sizeof(offer) };

	return tl_supervisor_get(&offer) ? ~0ull : offer.refusals;
}

void supervisor_switch(pid_t process, bool supervisor)
{
	enum tl_mode mode = supervisor ? TL_MODE_SUPERVISOR : TL_MODE_USER;
	unsigned int flags = supervisor ? TL_SWITCH_EXEC | TL_SWITCH_CHILDREN : 0;
	enum tl_refusal why = TL_REFUSED_NONE;
	int error = tl_switch_mode(process, mode, flags, &why);

	if (error)
		stat_fail("%s mode: %s: %s", supervisor ? "supervisor" : "user", strerror(-error),
			  tl_refusal_text(why));
}

void supervisor_read(struct supervisor_counts *counts)
{
	static struct tl_process entries[PROCESSES_MAX];
	int found = tl_process_list(entries, PROCESSES_MAX), i, cause;

	memset(counts, 0, sizeof(*counts));
	for (i = 0; i < found && i < PROCESSES_MAX; i++) {
		counts->calls[0] += entries[i].calls_direct;
		counts->calls[1] += entries[i].calls_worked;
		counts->calls[2] += entries[i].calls_left;
		counts->calls[3] += entries[i].calls_kernel;
		for (cause = 0; cause < TL_DEMOTIONS; cause++)
			counts->demotions[cause] += entries[i].demotions[cause];
	}
}
