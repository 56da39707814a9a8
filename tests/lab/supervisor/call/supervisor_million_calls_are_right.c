// SPDX-License-Identifier: GPL-2.0-only
/* A million calls: each gives the right result, nearly all return in supervisor mode. */
#include "supervisor.h"

#define CALLS 1000000

int main(void)
{
	long pid = getpid(), inside = 0;
	struct tl_process before, after;

	enter_supervisor(0);
	before = process_counts((pid_t)pid);
	for (int i = 0; i < CALLS; i++) {
		long got = sys(SYS_getpid);

		inside += cpl() == 0;
		if (got != pid)
			FAIL("call %d: getpid is %ld, expected %ld", i, got, pid);
	}
	after = process_counts((pid_t)pid);
	fprintf(stderr, "in supervisor mode after %ld of %d calls\n", inside, CALLS);
	CHECK_WITHIN(inside, MOST(CALLS), CALLS);
	CHECK_WITHIN(calls_inside(&after) - calls_inside(&before), MOST(CALLS), CALLS + 1);
	return 0;
}
