/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Starts a process in supervisor mode as the target of a tracer, and owns the tracer's steps. The
 * target makes numbered calls, so that a tracer notices if it has missed one.
 */
#ifndef TL_TEST_TRACED_H
#define TL_TEST_TRACED_H

#include <stddef.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>

#include "supervisor.h"

struct target {
	volatile uint64_t number;	/* of its last call */
	volatile uint64_t inside;	/* calls that returned in supervisor mode */
	volatile long watched;		/* changed once in 64 calls, by the target alone */
	volatile uint32_t end;		/* set by the tracer */
};

/* Calls getpid for ever, the number of the call in its first argument, until told to end. */
static inline void target_run(struct target *target)
{
	long pid = getpid();

	while (!target->end) {
		uint64_t number = target->number + 1;

		if (sys(SYS_getpid, number) != pid)
			FAIL("call %llu went wrong", (unsigned long long)number);
		target->inside += cpl() == 0;
		target->number = number;
		if (number % 64 == 0)
			target->watched++;
	}
}

/* A child in supervisor mode that makes calls; the target is shared with it. */
static inline pid_t target_start(struct target *target)
{
	pid_t pid;

	supervisor_need();
	pid = MUST(fork());
	if (pid == 0) {
		enter_supervisor(0);
		target_run(target);
		_exit(0);
	}
	while (target->inside < 1000)
		sleep_ms(1);
	return pid;
}

static inline void target_end(struct target *target, pid_t pid)
{
	target->end = 1;
	CHECK_EXITED(child_wait(pid), 0);
}

/* Attaches and waits for the stop. */
static inline void trace_attach(pid_t pid)
{
	int status;

	MUST(ptrace(PTRACE_ATTACH, pid, NULL, NULL));
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFSTOPPED(status));
	CHECK_EQ(WSTOPSIG(status), SIGSTOP);
	MUST(ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_TRACESYSGOOD));
}

/* Waits for the target's next stop; its signal. */
static inline int trace_stop(pid_t pid)
{
	int status;

	CHECK_EQ(waitpid(pid, &status, 0), pid);
	if (!WIFSTOPPED(status))
		FAIL("the target ended, wait status 0x%x", status);
	return WSTOPSIG(status);
}

/* Lets the target go by a request, to its next stop. */
static inline int trace_go(pid_t pid, int request)
{
	MUST(ptrace((enum __ptrace_request)request, pid, NULL, NULL));
	return trace_stop(pid);
}

/* The target's registers; CS and SS are user mode's whatever mode it is in. */
static inline struct user_regs_struct trace_registers(pid_t pid)
{
	struct user_regs_struct registers;

	MUST(ptrace(PTRACE_GETREGS, pid, NULL, &registers));
	CHECK_EQ(registers.cs, USER_CS);
	CHECK_EQ(registers.ss, USER_SS);
	CHECK_EQ(registers.eflags & 0x200, 0x200);
	CHECK(registers.rip >> 47 == 0 && registers.rsp >> 47 == 0);
	return registers;
}

static inline void trace_detach(pid_t pid)
{
	MUST(ptrace(PTRACE_DETACH, pid, NULL, NULL));
}

/* Waits until the target has made so many more calls in supervisor mode. */
static inline void target_wait(const struct target *target, uint64_t more)
{
	uint64_t want = target->inside + more;

	WAIT_UNTIL(target->inside >= want, "the target is not back in supervisor mode after %d ms",
		   WAIT_MS);
}

#endif /* TL_TEST_TRACED_H */
