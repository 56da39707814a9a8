/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The attack: a process of the same user writes to the memory of a process in supervisor mode, by
 * ptrace, /proc/PID/mem or process_vm_writev(), and so has its code run at level 0. While a process
 * is switched that takes CAP_SYS_PTRACE; before and after, it is as ever. Children in user mode are
 * open, children and programs in supervisor mode are not. Memory that processes share is closed
 * until the last of them is back in user mode, also where one of them has opened it.
 */
#include <sched.h>

#include "stranger.h"

enum { FORK = 1, SHARE, SHARE_AND_FORK, OPEN };	/* what the target is to do */

/* [1]: what the target is to do, then its child's process ID; [2]: the child's own child's */
static volatile long *shared;

static int sleep_for_ever(void *unused)
{
	struct timespec nap = { .tv_nsec = 1000000 };

	(void)unused;
	for (;;)
		sys(SYS_nanosleep, &nap, NULL);
	return 0;
}

static int fork_and_sleep(void *unused)
{
	long pid = sys(SYS_fork);

	if (pid)
		shared[2] = pid;
	return sleep_for_ever(unused);
}

static pid_t child_make(long how)
{
	static char stack[1 << 14] __attribute__((aligned(16)));
	pid_t pid;

	if (how == SHARE || how == SHARE_AND_FORK)
		return clone(how == SHARE ? sleep_for_ever : fork_and_sleep, stack + sizeof(stack),
			     CLONE_VM | SIGCHLD, NULL);
	pid = fork();
	if (pid == 0)
		sleep_for_ever(NULL);
	return pid;
}

/* Makes calls, and a child when it is told to. */
static void target(void)
{
	become_stranger();
	shared[0] = 1;
	for (;;) {
		sys(SYS_getppid);
		usleep(1000);
		if (shared[1] >= FORK && shared[1] <= SHARE_AND_FORK)
			shared[1] = child_make(shared[1]);
		if (shared[1] == OPEN)
			shared[1] = prctl(PR_SET_DUMPABLE, 1);
	}
}

static pid_t child_of_target(long how)
{
	shared[1] = how;
	WAIT_UNTIL(shared[1] != how, "no child after %d ms", WAIT_MS);
	return (pid_t)shared[1];
}

/* Back in user mode, and open: the last thread does that after it has changed. */
static void switch_back(pid_t pid)
{
	struct tl_process process;

	CHECK_EQ(raw_switch_user(pid), 0);
	WAIT_UNTIL(!process_find(pid, &process), "still switched after %d ms", WAIT_MS);
}

static void with_flags(pid_t pid, unsigned int flags, bool child_is_open)
{
	pid_t child;

	CHECK_EQ(attack_as_stranger(pid), 0);
	CHECK_EQ(switch_mode(pid, TL_MODE_SUPERVISOR, TL_SWITCH_ANY_USER | flags), 0);
	wait_mode(pid, TL_MODE_SUPERVISOR);
	CHECK_EQ(attack_as_stranger(pid), -1);
	child = child_of_target(FORK);
	CHECK_EQ(attack_as_stranger(child), child_is_open ? 0 : -1);
	if (!child_is_open) {
		switch_back(child);
		CHECK_EQ(attack_as_stranger(child), 0);
	}
	MUST(kill(child, SIGKILL));
	switch_back(pid);
	CHECK_EQ(attack_as_stranger(pid), 0);
}

/* Both are in supervisor mode, by one request or by two, and the first leaves it. */
static void with_shared_memory(pid_t pid, unsigned int flags)
{
	pid_t child;

	CHECK_EQ(switch_mode(pid, TL_MODE_SUPERVISOR, TL_SWITCH_ANY_USER | flags), 0);
	wait_mode(pid, TL_MODE_SUPERVISOR);
	child = child_of_target(SHARE);
	if (!(flags & TL_SWITCH_CHILDREN))
		CHECK_EQ(switch_mode(child, TL_MODE_SUPERVISOR, TL_SWITCH_ANY_USER), 0);
	wait_mode(child, TL_MODE_SUPERVISOR);
	switch_back(pid);
	CHECK_EQ(attack_as_stranger(child), -1);
	switch_back(child);
	CHECK_EQ(attack_as_stranger(child), 0);
	MUST(kill(child, SIGKILL));
}

/* A process in user mode with closed memory has children that are open. */
static void child_of_sharer_is_open(pid_t pid)
{
	pid_t child;

	CHECK_EQ(switch_mode(pid, TL_MODE_SUPERVISOR, TL_SWITCH_ANY_USER), 0);
	wait_mode(pid, TL_MODE_SUPERVISOR);
	shared[2] = 0;
	child = child_of_target(SHARE_AND_FORK);
	WAIT_UNTIL(shared[2] != 0, "no child of the child after %d ms", WAIT_MS);
	CHECK_EQ(attack_as_stranger(child), -1);
	CHECK_EQ(attack_as_stranger((pid_t)shared[2]), 0);
	switch_back(pid);
	MUST(kill((pid_t)shared[2], SIGKILL));
	MUST(kill(child, SIGKILL));
}

/* One opens the memory itself. It is closed again when the other is switched, until that ends. */
static void with_memory_that_was_opened(pid_t pid)
{
	pid_t child;

	CHECK_EQ(switch_mode(pid, TL_MODE_SUPERVISOR, TL_SWITCH_ANY_USER), 0);
	wait_mode(pid, TL_MODE_SUPERVISOR);
	child = child_of_target(SHARE);
	CHECK_EQ(child_of_target(OPEN), 0);
	CHECK_EQ(attack_as_stranger(child), 0);
	CHECK_EQ(switch_mode(child, TL_MODE_SUPERVISOR, TL_SWITCH_ANY_USER), 0);
	wait_mode(child, TL_MODE_SUPERVISOR);
	switch_back(pid);
	CHECK_EQ(attack_as_stranger(child), -1);
	switch_back(child);
	CHECK_EQ(attack_as_stranger(child), 0);
	MUST(kill(child, SIGKILL));
}

/* A process that has opened itself is closed by the next request, and open after it. */
static void again(pid_t pid)
{
	CHECK_EQ(switch_mode(pid, TL_MODE_SUPERVISOR, TL_SWITCH_ANY_USER), 0);
	wait_mode(pid, TL_MODE_SUPERVISOR);
	CHECK_EQ(child_of_target(OPEN), 0);
	CHECK_EQ(attack_as_stranger(pid), 0);
	CHECK_EQ(switch_mode(pid, TL_MODE_SUPERVISOR, TL_SWITCH_ANY_USER), 0);
	CHECK_EQ(attack_as_stranger(pid), -1);
	switch_back(pid);
	CHECK_EQ(attack_as_stranger(pid), 0);
}

static int level_of_child(void)
{
	pid_t pid = MUST(fork());
	int status;

	if (pid == 0)
		_exit((int)level_reached());
	status = child_wait(pid);
	CHECK(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* The kernel closes one that gives its rights away, and nobody opens that; its children follow. */
static void daemon_of_root(void)
{
	enter_supervisor(TL_SWITCH_CHILDREN | TL_SWITCH_ANY_USER);
	CHECK_EQ(level_of_child(), 0);
	CHECK_EQ(sys(SYS_setresuid, STRANGER, STRANGER, STRANGER), 0);
	CHECK_EQ(prctl(PR_GET_DUMPABLE), 0);
	CHECK_EQ(level_of_child(), 0);
	CHECK_EQ(raw_switch_user(0), 0);
	CHECK_EQ(prctl(PR_GET_DUMPABLE), 0);
}

static void without_flag(pid_t pid)
{
	struct tl_switch request = {
		.size = sizeof(request), .mode = TL_MODE_SUPERVISOR, .pid = pid,
	};

	CHECK_EQ(switch_ioctl(&request), -EPERM);
	CHECK_EQ(request.refusal, TL_REFUSED_NOT_ROOTS);
}

int main(void)
{
	pid_t pid;

	supervisor_need();
	shared = shared_memory(4096);
	pid = child_start(target);
	WAIT_UNTIL(shared[0] == 1, "no target after %d ms", WAIT_MS);
	without_flag(pid);
	with_flags(pid, 0, true);
	with_flags(pid, TL_SWITCH_CHILDREN, false);
	with_shared_memory(pid, 0);
	with_shared_memory(pid, TL_SWITCH_CHILDREN);
	child_of_sharer_is_open(pid);
	with_memory_that_was_opened(pid);
	again(pid);
	CHECK_EXITED(child_wait(child_start(daemon_of_root)), 0);
	check_traced_is_refused(pid, pid);
	with_flags(pid, 0, true);
	MUST(kill(pid, SIGKILL));
	child_wait(pid);
	return 0;
}
