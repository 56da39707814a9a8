// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a switched process forks is a process of its own, in user mode, by fork, vfork and clone;
 * with TL_SWITCH_CHILDREN it starts in supervisor mode, and so do its children. The parent stays
 * as it was in either case.
 */
#include "supervisor.h"

#define GENERATIONS 4

static int status_of_fork(long nr)
{
	pid_t pid;

	if (nr == SYS_clone)
		pid = (pid_t)sys(nr, SIGCHLD);
	else
		pid = fork();
	if (pid == 0)
		report_mode();
	return child_wait(pid);
}

static int status_of_vfork(void)
{
	pid_t pid = vfork();

	if (pid == 0)
		report_mode();
	return child_wait(pid);
}

static void check_children(int mode)
{
	for (int i = 0; i < 20; i++) {
		CHECK_EXITED(status_of_fork(SYS_fork), mode);
		CHECK_EXITED(status_of_fork(SYS_clone), mode);
		CHECK_EXITED(status_of_vfork(), mode);
		reach_supervisor();
	}
}

static void generation(int left)
{
	int status;
	pid_t pid;

	reach_supervisor();
	if (!left) {
		CHECK_EQ(supervisor_info().processes, GENERATIONS + 1);
		_exit(0);
	}
	pid = MUST(fork());
	if (pid == 0)
		generation(left - 1);
	status = child_wait(pid);
	CHECK_EXITED(status, 0);
	if (left < GENERATIONS)
		_exit(0);
}

int main(void)
{
	enter_supervisor(0);
	check_children(3);
	CHECK_EQ(switch_mode(0, TL_MODE_SUPERVISOR, TL_SWITCH_CHILDREN), 0);
	CHECK_EQ(process_counts(getpid()).flags, TL_SWITCH_CHILDREN);
	check_children(0);
	generation(GENERATIONS);
	CHECK_EQ(switch_mode(0, TL_MODE_SUPERVISOR, 0), 0);	/* replaces the option */
	check_children(3);
	CHECK_EQ(supervisor_info().processes, 1);
	return 0;
}
