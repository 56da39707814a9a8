// SPDX-License-Identifier: GPL-2.0-only
/*
 * A process is switched while its fork or its execve() is under way. A child that was copied before
 * its parent was closed, and is switched itself before its parent's fork comes to an end, stays
 * closed to its user as long as it is in supervisor mode, and is open after. One that was copied
 * while its parent was closed is open, also where its parent was opened before the fork came to an
 * end. A request that comes when the new program has its memory is about the new program. hold.ko
 * makes these moments last.
 */
#include <sys/prctl.h>

#include "supervisor.h"

#define MODULE "/hold.ko"
#define PARAMETERS "/sys/module/hold/parameters/"
#define WAKE 100	/* the pipe's end in the new program */

static volatile struct {
	bool asked;
	int level, dumpable;	/* of the child, again and again */
} *board;

static int wake[2];

static void hold(const char *where)
{
	int file = open(MODULE, O_RDONLY);

	if (file < 0)
		SKIP("no %s: %s", MODULE, strerror(errno));
	if (sys(SYS_finit_module, file, where, 0) < 0)
		SKIP("tasks cannot be held here (%s)", where);
	close(file);
}

static void wait_held(int times)
{
	char text[32] = "0";

	WAIT_UNTIL(read_file(PARAMETERS "held", text, sizeof(text)) > 0 && atoi(text) >= times,
		   "held %s times after %d ms", text, WAIT_MS);
}

static void release(const char *times)
{
	CHECK(write_file(PARAMETERS "released", times) >= 0);
}

static void let_go(void)
{
	CHECK_EQ(sys(SYS_delete_module, "hold", 0), 0);
}

static void wait_asked(void)
{
	MUST(prctl(PR_SET_NAME, "held"));
	while (!board->asked)
		usleep(1000);
}

static void forker(void)
{
	wait_asked();
	if (MUST(fork()) > 0) {
		for (;;)
			usleep(1000);
	}
	MUST(prctl(PR_SET_PDEATHSIG, SIGKILL));
	for (;;) {
		sys(SYS_getppid);
		board->level = (int)cpl();
		board->dumpable = prctl(PR_GET_DUMPABLE);
		usleep(1000);
	}
}

static pid_t child_of(pid_t pid)
{
	char path[64], text[64] = "";

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
	WAIT_UNTIL(read_file(path, text, sizeof(text)) > 0 && atoi(text) > 0,
		   "no child after %d ms", WAIT_MS);
	return atoi(text);
}

static void amid_fork(unsigned int flags)
{
	pid_t pid, child;

	board->asked = false;
	board->level = board->dumpable = -1;
	pid = child_start(forker);
	hold("functions=copy_thread,sched_post_fork comm=held");
	board->asked = true;
	wait_held(1);		/* the child has a copy of the memory */
	CHECK_EQ(switch_mode(pid, TL_MODE_SUPERVISOR, flags), 0);
	release("1");
	wait_held(2);		/* it can be found */
	child = child_of(pid);
	CHECK_EQ(raw_switch_supervisor(child), 0);
	release("2");
	WAIT_UNTIL(board->level == 0, "the child is not in the mode after %d ms", WAIT_MS);
	board->dumpable = -1;
	WAIT_UNTIL(board->dumpable >= 0, "no answer after %d ms", WAIT_MS);
	CHECK_EQ(board->dumpable, 2);
	CHECK_EQ(supervisor_info().processes, 2);
	CHECK_EQ(raw_switch_user(child), 0);
	WAIT_UNTIL(board->dumpable == 1, "the child is not open after %d ms", WAIT_MS);
	let_go();
	MUST(kill(pid, SIGKILL));
	child_wait(pid);
}

static void switched_back_amid_fork(void)
{
	pid_t pid;

	board->asked = false;
	board->level = board->dumpable = -1;
	pid = child_start(forker);
	hold("functions=sched_fork,sched_post_fork comm=held");
	board->asked = true;
	wait_held(1);		/* the memory is not copied yet */
	CHECK_EQ(raw_switch_supervisor(pid), 0);
	release("1");
	wait_held(2);		/* the child has a copy, and is not known yet */
	CHECK_EQ(raw_switch_user(pid), 0);
	release("2");
	WAIT_UNTIL(board->dumpable >= 0, "no answer after %d ms", WAIT_MS);
	CHECK_EQ(board->level, 3);
	CHECK_EQ(board->dumpable, 1);
	let_go();
	MUST(kill(pid, SIGKILL));
	child_wait(pid);
}

static void executor(void)
{
	MUST(dup2(wake[0], WAKE));
	wait_asked();
	exec_stage("executed");
}

static void amid_exec(void)
{
	pid_t pid;
	long result;

	board->asked = false;
	pid = child_start(executor);
	hold("functions=finalize_exec comm=exe");
	board->asked = true;
	wait_held(1);
	do
		result = raw_switch_supervisor(pid);
	while (result == -EAGAIN);
	CHECK_EQ(result, 0);
	release("1");
	CHECK_EQ(write(wake[1], "x", 1), 1);
	CHECK_EXITED(child_wait(pid), 0);
	let_go();
}

int main(void)
{
	char byte;

	if (!strcmp(test_stage(), "executed")) {
		CHECK_EQ(sys(SYS_read, WAKE, &byte, 1), 1);
		CHECK_EQ(prctl(PR_GET_DUMPABLE), 2);
		report_mode();
	}
	supervisor_need();
	MUST(pipe(wake));
	board = shared_memory(sizeof(*board));
	amid_fork(0);
	amid_fork(TL_SWITCH_CHILDREN);
	switched_back_amid_fork();
	amid_exec();
	return 0;
}
