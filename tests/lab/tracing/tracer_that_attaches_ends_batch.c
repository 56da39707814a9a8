// SPDX-License-Identifier: GPL-2.0-only
/*
 * A tracer attaches while a batch sleeps in its first call: the batch ends before its next call,
 * which the thread then makes plainly, where the tracer sees it.
 */
#include <sys/ptrace.h>

#include "ring.h"

static int pipe_fd[2];

static void tracee(void)
{
	struct ring ring = ring_open(4);
	char byte;
	long done;

	ring_put(&ring, 0, SYS_read, pipe_fd[0], &byte, 1);
	ring_put(&ring, 1, SYS_getppid);
	ring_put(&ring, 2, SYS_getppid);
	done = ring_batch(&ring, 0, 3);
	if (done == -EBUSY)
		done = 0;
	CHECK_WITHIN(done, 0, 1);
	if (done == 0)
		CHECK_EQ(sys(SYS_read, pipe_fd[0], &byte, 1), 1);
	for (unsigned int slot = 1; slot < 3; slot++) {
		CHECK_EQ(ring_state(&ring, slot), TL_SUBMITTED);
		CHECK(sys(SYS_getppid) > 0);
	}
}

int main(void)
{
	unsigned int seen = 0, stops = 0;
	int status;
	pid_t pid;

	MUST(pipe(pipe_fd));
	pid = child_start(tracee);
	wait_asleep(pid);
	MUST(ptrace(PTRACE_SEIZE, pid, NULL, PTRACE_O_TRACESYSGOOD));
	MUST(ptrace(PTRACE_INTERRUPT, pid, NULL, NULL));
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFSTOPPED(status));
	CHECK_EQ(write(pipe_fd[1], "x", 1), 1);
	for (;;) {
		struct __ptrace_syscall_info info;

		MUST(ptrace(PTRACE_SYSCALL, pid, NULL, NULL));
		CHECK_EQ(waitpid(pid, &status, 0), pid);
		if (!WIFSTOPPED(status))
			break;
		CHECK(++stops < 100);
		if (WSTOPSIG(status) != (SIGTRAP | 0x80))
			continue;
		MUST(ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof(info), &info));
		seen += info.op == PTRACE_SYSCALL_INFO_ENTRY && info.entry.nr == SYS_getppid;
	}
	CHECK_EXITED(status, 0);
	CHECK_EQ(seen, 2);
	return 0;
}
