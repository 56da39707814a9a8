// SPDX-License-Identifier: GPL-2.0-only
/*
 * A tracer that stops a program at every system call sees each call of a batch, though the program
 * uses the module: the module answers -EBUSY and the library makes the calls one by one. The batch
 * says so, and a program of calls does, too.
 */
#include "check.h"

#include <fcntl.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <trapless.h>

#define CALLS 20

static void check_reason(const struct tl_batch *batch)
{
	const char *reason = tl_batch_reason(batch);

	CHECK(reason && strstr(reason, "tracer"));
}

static void program_says_so(void)
{
	struct tl_batch *batch;

	CHECK_EQ(tl_batch_create(&batch, 8, TL_MODULE), 0);
	for (int i = 0; i < 2; i++)
		TL_ADD(batch, SYS_getppid);
	CHECK_EQ(tl_batch_jump(batch, 0, TL_IF_ALWAYS, 1), 0);
	CHECK(!tl_batch_reason(batch));
	CHECK_EQ(tl_batch_flush(batch), 2);
	check_reason(batch);
	tl_batch_destroy(batch);
}

static void walk_says_so(void)
{
	const struct tl_walk_entry *entry;
	struct tl_walk *walk;

	CHECK_EQ(tl_walk_create(&walk, AT_FDCWD, "/proc/self/fdinfo", 0, TL_MODULE, 0), 0);
	CHECK(!tl_walk_reason(walk));
	while (tl_walk_next(walk, &entry) == 1)
		;
	CHECK_EQ(tl_walk_backend(walk), TL_BACKEND_PLAIN);
	CHECK(strstr(tl_walk_reason(walk), "tracer"));
	tl_walk_destroy(walk);
}

static void tracee(void)
{
	struct tl_stats stats = { .size = sizeof(stats) };
	struct tl_batch *batch;
	pid_t group = getpgrp();	/* which may itself be a getpgid */

	CHECK_EQ(tl_batch_create(&batch, 32, TL_MODULE), 0);
	MUST(ptrace(PTRACE_TRACEME, 0, NULL, NULL));
	raise(SIGSTOP);
	for (int i = 0; i < CALLS; i++)
		TL_ADD(batch, SYS_getpgid, 0);
	CHECK(!tl_batch_reason(batch));
	CHECK_EQ(tl_batch_flush(batch), CALLS);
	check_reason(batch);
	for (unsigned int i = 0; i < CALLS; i++)
		CHECK_EQ(tl_batch_result(batch, i), group);
	CHECK_EQ(tl_batch_get_stats(batch, &stats), 0);
	CHECK_EQ(stats.bypassed, 1);
	CHECK_EQ(stats.executed, CALLS);
	tl_batch_destroy(batch);
	program_says_so();
	walk_says_so();
}

int main(void)
{
	pid_t pid = child_start(tracee);
	struct __ptrace_syscall_info call;
	int status, seen = 0;
	bool entering = false;

	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFSTOPPED(status));
	MUST(ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL));
	for (;;) {
		MUST(ptrace(PTRACE_SYSCALL, pid, NULL, NULL));
		CHECK_EQ(waitpid(pid, &status, 0), pid);
		if (!WIFSTOPPED(status))
			break;
		CHECK_EQ(WSTOPSIG(status), SIGTRAP | 0x80);
		entering = !entering;
		MUST(ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof(call), &call));
		seen += entering && call.entry.nr == SYS_getpgid;
	}
	CHECK_EXITED(status, 0);
	CHECK_EQ(seen, CALLS);
	return 0;
}
