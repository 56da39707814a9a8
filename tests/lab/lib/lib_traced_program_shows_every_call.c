// SPDX-License-Identifier: GPL-2.0-only
/*
 * A tracer that stops a program at every system call sees each call of a batch, though the program
 * uses the module: the module answers -EBUSY and the library makes the calls one by one.
 */
#include "check.h"

#include <sys/ptrace.h>
#include <sys/user.h>
#include <trapless.h>

#define CALLS 20

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
	CHECK_EQ(tl_batch_flush(batch), CALLS);
	for (unsigned int i = 0; i < CALLS; i++)
		CHECK_EQ(tl_batch_result(batch, i), group);
	CHECK_EQ(tl_batch_get_stats(batch, &stats), 0);
	CHECK_EQ(stats.bypassed, 1);
	CHECK_EQ(stats.executed, CALLS);
	tl_batch_destroy(batch);
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
