// SPDX-License-Identifier: GPL-2.0-only
/*
 * A tracer of system calls (strace) that attaches to a process in supervisor mode sees every call
 * from then on, in order, at its entry and at its exit, and can change both.
 */
#include "traced.h"

#define ROUNDS 3
#define CALLS 100

/* At the entry of a getpid that the target numbered: its number. */
static uint64_t entry_number(pid_t pid)
{
	struct user_regs_struct registers = trace_registers(pid);

	CHECK_EQ(registers.orig_rax, SYS_getpid);
	CHECK_EQ(registers.rax, -ENOSYS);
	return registers.rdi;
}

static void check_exit(pid_t pid, uint64_t number)
{
	struct user_regs_struct registers = trace_registers(pid);

	CHECK_EQ(registers.orig_rax, SYS_getpid);
	CHECK_EQ(registers.rax, pid);
	CHECK_EQ(registers.rdi, number);
}

/* Another call in place of the target's, and back: it must not notice. */
static void replace_call(pid_t pid)
{
	struct user_regs_struct registers = trace_registers(pid);

	registers.orig_rax = SYS_getppid;
	MUST(ptrace(PTRACE_SETREGS, pid, NULL, &registers));
	CHECK_EQ(trace_go(pid, PTRACE_SYSCALL), SIGTRAP | 0x80);
	registers = trace_registers(pid);
	CHECK_EQ(registers.rax, getpid());
	registers.rax = (unsigned long)pid;
	MUST(ptrace(PTRACE_SETREGS, pid, NULL, &registers));
}

/* ---- For test_lab_debuggers.py: says when it is inside, then calls until it is told -------- */

#define TOOL_CALLS 3000
#define TOOL_FIRST 0x40000000	/* number of the first of them */

static volatile sig_atomic_t told;

static void tell(int signal)
{
	(void)signal;
	told = 1;
}

/*
 * Neither tool can be seen coming from in here: gdb has the process stopped nearly all the time,
 * and strace asks for calls some time after it has attached. Who started them sees what they did.
 */
static void call_until_told(void)
{
	on_signal(SIGUSR1, tell, SA_RESTART);
	enter_supervisor(0);
	CHECK_EQ(sys(SYS_write, STDOUT_FILENO, "inside\n", 7), 7);
	while (!told)
		CHECK_EQ(sys(SYS_getpgid, TOOL_FIRST - 1), -ESRCH);
}

/* Numbered calls while it is traced; what they return depends on nothing else. */
static int wait_for_strace(void)
{
	call_until_told();
	for (int i = 0; i < TOOL_CALLS; i++)
		CHECK_EQ(sys(SYS_getpgid, TOOL_FIRST + i), -ESRCH);
	return 0;
}

static int wait_for_gdb(void)
{
	call_until_told();
	reach_supervisor();
	return 0;
}

int main(void)
{
	struct target *target;
	pid_t pid;

	if (!strcmp(test_stage(), "strace"))
		return wait_for_strace();
	if (!strcmp(test_stage(), "gdb"))
		return wait_for_gdb();
	target = shared_memory(sizeof(*target));
	pid = target_start(target);
	for (int round = 0; round < ROUNDS; round++) {
		uint64_t first;

		trace_attach(pid);
		CHECK_EQ(trace_go(pid, PTRACE_SYSCALL), SIGTRAP | 0x80);
		first = entry_number(pid);
		CHECK_WITHIN(first, target->number, target->number + 1);
		for (uint64_t number = first; number < first + CALLS; number++) {
			CHECK_EQ(entry_number(pid), number);
			if (number == first + 7) {
				replace_call(pid);
			} else {
				CHECK_EQ(trace_go(pid, PTRACE_SYSCALL), SIGTRAP | 0x80);
				check_exit(pid, number);
			}
			CHECK_EQ(trace_go(pid, PTRACE_SYSCALL), SIGTRAP | 0x80);
		}
		trace_detach(pid);
		target_wait(target, 1000);
	}
	target_end(target, pid);
	return 0;
}
