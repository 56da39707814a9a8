// SPDX-License-Identifier: GPL-2.0-only
/*
 * A new program starts in user mode, also when a thread that is not the first executes it; with
 * TL_SWITCH_EXEC it starts in supervisor mode. A program with more rights than its caller's
 * (set-user-ID) never does, nor one that executes it in turn. One that a switched root executes
 * after it has become another user, as login programs do, takes TL_SWITCH_ANY_USER as well.
 */
#include <sys/prctl.h>
#include <sys/stat.h>

#include "supervisor.h"

#define STRANGER 1000

static void exec_plain(void)
{
	enter_supervisor(0);
	exec_stage("report");
}

static void exec_kept(void)
{
	enter_supervisor(TL_SWITCH_EXEC);
	exec_stage("report");
}

static void exec_twice(void)
{
	enter_supervisor(TL_SWITCH_EXEC);
	exec_stage("again");
}

static void *exec_in_thread(void *unused)
{
	(void)unused;
	reach_supervisor();
	exec_stage("report");
}

static void exec_of_thread(unsigned int flags)
{
	pthread_t thread;

	enter_supervisor(flags);
	CHECK_EQ(pthread_create(&thread, NULL, exec_in_thread, NULL), 0);
	for (;;)
		sys(SYS_getppid);
}

static void exec_of_thread_plain(void)
{
	exec_of_thread(0);
}

static void exec_of_thread_kept(void)
{
	exec_of_thread(TL_SWITCH_EXEC);
}

/* As another user, to whom the file's owner (root) is more. */
static void exec_set_user_id(void)
{
	enter_supervisor(TL_SWITCH_EXEC | TL_SWITCH_CHILDREN);
	MUST(setenv("TL_TEST_STAGE", "privileged", 1));
	CHECK_EQ(sys(SYS_setresgid, STRANGER, STRANGER, STRANGER), 0);
	CHECK_EQ(sys(SYS_setresuid, STRANGER, STRANGER, STRANGER), 0);
	execl("./set-user-id", program_invocation_short_name, (char *)NULL);
	FAIL("exec: %s", strerror(errno));
}

static void become_stranger_and_exec(unsigned int flags)
{
	enter_supervisor(TL_SWITCH_EXEC | flags);
	CHECK_EQ(sys(SYS_setresgid, STRANGER, STRANGER, STRANGER), 0);
	CHECK_EQ(sys(SYS_setresuid, STRANGER, STRANGER, STRANGER), 0);
	exec_stage("report");
}

static void exec_of_stranger(void)
{
	become_stranger_and_exec(0);
}

static void exec_of_trusted_stranger(void)
{
	become_stranger_and_exec(TL_SWITCH_ANY_USER);
}

static void make_set_user_id(void)
{
	char buffer[65536];
	int from = MUST(open("/proc/self/exe", O_RDONLY));
	int to = MUST(open("set-user-id", O_WRONLY | O_CREAT | O_TRUNC, 0755));
	ssize_t n;

	while ((n = MUST(read(from, buffer, sizeof(buffer)))) > 0)
		CHECK_EQ(write(to, buffer, (size_t)n), n);
	close(from);
	MUST(fchmod(to, 04755));
	close(to);
}

int main(void)
{
	if (!strcmp(test_stage(), "report"))
		report_mode();
	if (!strcmp(test_stage(), "again"))
		exec_stage("report");
	if (!strcmp(test_stage(), "privileged")) {
		CHECK_EQ(getuid(), STRANGER);
		CHECK_EQ(geteuid(), 0);
		report_mode();
	}
	supervisor_need();
	make_set_user_id();
	for (int i = 0; i < 10; i++) {
		CHECK_EXITED(child_run(exec_plain), 3);
		CHECK_EXITED(child_run(exec_kept), 0);
		CHECK_EXITED(child_run(exec_twice), 0);
		CHECK_EXITED(child_run(exec_of_thread_plain), 3);
		CHECK_EXITED(child_run(exec_of_thread_kept), 0);
		CHECK_EXITED(child_run(exec_set_user_id), 3);
		CHECK_EXITED(child_run(exec_of_stranger), 3);
		CHECK_EXITED(child_run(exec_of_trusted_stranger), 0);
	}
	unlink("set-user-id");
	CHECK_EQ(supervisor_info().processes, 0);
	return 0;
}
