// SPDX-License-Identifier: GPL-2.0-only
/*
 * The batches of a traced thread are -EBUSY and execute nothing, so that the thread makes its calls
 * one by one and its tracer sees each of them; without the tracer batches work again.
 */
#include <sys/ptrace.h>
#include <sys/user.h>

#include "ring.h"

#define CALLS 4u

static void tracee(void)
{
	struct ring ring = ring_open(CALLS);

	MUST(ptrace(PTRACE_TRACEME, 0, NULL, NULL));
	raise(SIGSTOP);
	for (unsigned int slot = 0; slot < CALLS; slot++)
		ring_put(&ring, slot, SYS_getppid);
	CHECK_EQ(ring_batch(&ring, 0, CALLS), -EBUSY);
	for (unsigned int slot = 0; slot < CALLS; slot++) {
		CHECK_EQ(ring_state(&ring, slot), TL_SUBMITTED);
		CHECK(sys(SYS_getppid) > 0);
	}
	CHECK_EQ(ring_stats(&ring).executed, 0);
	CHECK_EQ(ring_stats(&ring).bypassed, 1);
	raise(SIGSTOP);		/* here the tracer detaches */
	CHECK_EQ(ring_batch(&ring, 0, CALLS), CALLS);
	CHECK_EQ(ring_stats(&ring).bypassed, 1);
}

int main(void)
{
	pid_t pid = child_start(tracee);
	unsigned int seen_calls = 0, seen_batches = 0, stops = 0;
	int status = child_wait(pid);

	CHECK(WIFSTOPPED(status));
	MUST(ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_TRACESYSGOOD));
	for (;;) {
		struct __ptrace_syscall_info call;

		MUST(ptrace(PTRACE_SYSCALL, pid, NULL, NULL));
		CHECK_EQ(waitpid(pid, &status, 0), pid);
		if (!WIFSTOPPED(status))
			FAIL("the tracee ended early: status 0x%x", status);
		if (WSTOPSIG(status) == SIGSTOP)
			break;
		CHECK_EQ(WSTOPSIG(status), SIGTRAP | 0x80);
		if (stops++ % 2)
			continue;	/* the exit of a call */
		MUST(ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof(call), &call));
		seen_calls += call.entry.nr == SYS_getppid;
		seen_batches += call.entry.nr == SYS_lseek;
	}
	MUST(ptrace(PTRACE_DETACH, pid, NULL, NULL));
	CHECK_EXITED(child_wait(pid), 0);
	CHECK_EQ(seen_calls, CALLS);
	CHECK_EQ(seen_batches, 1);
	return 0;
}
