// SPDX-License-Identifier: GPL-2.0-only
/*
 * A thread that sleeps in a call made in supervisor mode is switched back and killed before it
 * wakes: it does both at once, and the module knows nothing of it afterwards.
 */
#include "supervisor.h"

#define TURNS 20

static void sleep_in_call(void)
{
	enter_supervisor(0);
	for (;;)
		sys(SYS_pause);
}

int main(void)
{
	struct tl_process left;

	supervisor_need();
	for (int i = 0; i < TURNS; i++) {
		pid_t child = child_start(sleep_in_call);

		wait_mode(child, TL_MODE_SUPERVISOR);
		wait_asleep(child);
		CHECK_EQ(raw_switch_user(child), 0);
		MUST(kill(child, SIGKILL));
		CHECK_KILLED(child_wait(child), SIGKILL);
		if (process_find(child, &left))
			FAIL("process %d has ended, and %u threads of it are still known",
			     (int)child, left.threads);
	}
	return 0;
}
