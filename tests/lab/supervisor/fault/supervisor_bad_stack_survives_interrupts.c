// SPDX-License-Identifier: GPL-2.0-only
/*
 * An interrupt in supervisor mode does not use the program's stack pointer, which may be anything:
 * low, null, not canonical, an address of the kernel. The program goes on where it was.
 */
#include "supervisor.h"

#define STACKS 8u
#define ROUNDS 4
#define ROUNDS_MAX 40	/* where a busy host keeps the timer's ticks waiting */
#define SPINS 10000000L		/* many timer ticks */

/* A call, CS written down, then a loop with the stack pointer as given. */
static unsigned int spin_on(uint64_t stack)
{
	uint16_t cs;
	long spins = SPINS;

	__asm__ volatile("mov %[getppid], %%eax\n\t"
			 "syscall\n\t"
			 "mov %%cs, %[cs]\n\t"
			 "mov %%rsp, %%r12\n\t"
			 "mov %[stack], %%rsp\n"
			 "1:	dec %[spins]\n\t"
			 "jnz 1b\n\t"
			 "mov %%r12, %%rsp"
			 : [cs] "=r"(cs), [spins] "+r"(spins)
			 : [getppid] "i"(SYS_getppid), [stack] "r"(stack)
			 : "rax", "rcx", "r11", "r12", "memory", "cc");
	return cs;
}

int main(void)
{
	static const uint64_t stacks[STACKS] = {
		0, 0x1230, 0x1231, 0x7ffffffff000, 0x8000123412341234, 0xffff800000000000,
		0xffffffffff600800, 0xfffffffffffffff8,
	};
	const uint64_t want = ROUNDS * STACKS / 2;
	struct tl_process before, after;
	uint64_t met = 0;
	long inside = 0, rounds = 0;

	enter_supervisor(0);
	before = process_counts(getpid());
	for (int round = 0; round < ROUNDS || (met < want && round < ROUNDS_MAX); round++) {
		for (size_t i = 0; i < STACKS; i++, rounds++) {
			reach_supervisor();
			inside += (spin_on(stacks[i]) & 3) == 0;
		}
		after = process_counts(getpid());
		met = demoted(&before, &after, TL_DEMOTED_INTERRUPT);
	}
	CHECK_WITHIN(inside, rounds * 8 / 10, rounds);
	CHECK(met >= want);
	return 0;
}
