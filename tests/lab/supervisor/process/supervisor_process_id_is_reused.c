// SPDX-License-Identifier: GPL-2.0-only
/*
 * A process that gets the process ID of one that was switched and died is in user mode, unknown
 * to the module, and can be switched itself; a request that races with the end of its target
 * switches the target or nobody.
 */
#include "supervisor.h"

#define LAST_PID "/proc/sys/kernel/ns_last_pid"
#define ROUNDS 50

static void switched(void)
{
	enter_supervisor(TL_SWITCH_CHILDREN | TL_SWITCH_EXEC);
}

static void fresh(void)
{
	struct tl_process process;

	for (int i = 0; i < REACH_CALLS; i++) {
		sys(SYS_getppid);
		CHECK_EQ(cpl(), 3);
	}
	CHECK(!process_find(getpid(), &process));
	enter_supervisor(0);
}

/* A child with that process ID. */
static pid_t child_with(pid_t wanted, void (*body)(void))
{
	char text[32];

	for (int i = 0; i < 100; i++) {
		pid_t pid;

		snprintf(text, sizeof(text), "%d", wanted - 1);
		if (write_file(LAST_PID, text) < 0)
			SKIP("this kernel does not let us choose a process ID");
		pid = child_start(body);
		if (pid == wanted)
			return pid;
		CHECK_EXITED(child_wait(pid), 0);
	}
	SKIP("process ID %d is taken", (int)wanted);
}

static void ends_soon(void)
{
	for (volatile int i = 0; i < 20000; i++)
		;
}

int main(void)
{
	supervisor_need();
	for (int i = 0; i < ROUNDS; i++) {
		pid_t pid = child_start(switched);

		CHECK_EXITED(child_wait(pid), 0);
		CHECK_EXITED(child_wait(child_with(pid, fresh)), 0);
	}
	for (int i = 0; i < ROUNDS * 4; i++) {
		pid_t pid = child_start(ends_soon);
		long result = 0;

		for (int k = 0; k < 20 && result == 0; k++)
			result = raw_switch_supervisor(pid);
		CHECK(result == 0 || result == -ENOEXEC || result == -ESRCH);
		CHECK_EXITED(child_wait(pid), 0);
		CHECK_EQ(raw_switch_supervisor(pid), -ESRCH);
	}
	CHECK_EQ(supervisor_info().processes, 0);
	return 0;
}
