// SPDX-License-Identifier: GPL-2.0-only
/*
 * Switching on the kernel's trace of system calls (perf trace, ftrace) while a process is in
 * supervisor mode shows every call of it from then on, and switching it off brings supervisor
 * mode back.
 */
#include <sys/mount.h>

#include "supervisor.h"

#define TRACEFS "/sys/kernel/tracing"
#define EVENT TRACEFS "/events/raw_syscalls/sys_enter/"
#define CALLS 500
#define NUMBER 0x5ca1ab1e	/* first argument of the calls that are looked for */

static char trace[1 << 20];

/* Lines of the trace that are our calls. */
static long traced_calls(void)
{
	char want[64];
	long found = 0;

	snprintf(want, sizeof(want), "NR %d (%x,", SYS_getpid, NUMBER);
	CHECK(read_file(TRACEFS "/trace", trace, sizeof(trace)) > 0);
	for (char *at = trace; (at = strstr(at, want)); at++)
		found++;
	return found;
}

int main(void)
{
	long pid = getpid();
	char filter[32];
	long error;

	if (access(EVENT "enable", W_OK) < 0)
		mount("tracefs", TRACEFS, "tracefs", 0, NULL);
	snprintf(filter, sizeof(filter), "id == %d", SYS_getpid);
	error = write_file(EVENT "filter", filter);
	if (error < 0)
		SKIP("cannot use the tracepoint: %s", strerror((int)-error));
	enter_supervisor(0);
	CHECK(write_file(TRACEFS "/trace", "\n") > 0);
	CHECK_EQ(write_file(EVENT "enable", "1"), 1);
	for (int i = 0; i < CALLS; i++) {
		CHECK_EQ(sys(SYS_getpid, NUMBER), pid);
		CHECK_EQ(cpl(), 3);
	}
	CHECK_EQ(write_file(EVENT "enable", "0"), 1);
	CHECK_EQ(traced_calls(), CALLS);
	CHECK(write_file(EVENT "filter", "0") > 0);
	reach_supervisor();
	return 0;
}
