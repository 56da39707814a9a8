/* SPDX-License-Identifier: GPL-2.0-only */
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

/* ---- For test_lab_debuggers.py: waits for strace or gdb, then calls ------------------------ */

#define TOOL_CALLS 3000

static bool is_traced(void)
{
	char text[4096], *line;

	CHECK(read_file("/proc/self/status", text, sizeof(text)) > 0);
	line = strstr(text, "TracerPid:");
	CHECK(line);
	return atoi(line + strlen("TracerPid:")) != 0;
}

/* Numbered calls while it is traced; what they return depends on nothing else. */
static int wait_for_strace(void)
{
	enter_supervisor(0);
	while (!is_traced())
		sys(SYS_getppid);
	sleep_ms(300);		/* it has attached; give it time to ask for system calls */
	for (int i = 0; i < TOOL_CALLS; i++)
		CHECK_EQ(sys(SYS_getpgid, 0x40000000 + i), -ESRCH);
	return 0;
}

static int wait_for_gdb(void)
{
	enter_supervisor(0);
	while (!is_traced())
		sys(SYS_getppid);
	while (is_traced())
		sys(SYS_getppid);
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
