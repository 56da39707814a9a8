// SPDX-License-Identifier: GPL-2.0-only
/*
 * The kernel writes CR4 from a copy of its own, which has SMEP, SMAP and LASS: under a thread in
 * supervisor mode its next instruction or access of data then faults. Nobody notices: the thread
 * goes on, in user mode until its next call. (Here the thread itself sets the bits: it may.)
 */
#include <ucontext.h>

#include "supervisor.h"

#define SMEP (1ul << 20)
#define SMAP (1ul << 21)
#define LASS (1ul << 27)
#define SETS 5
#define ROUNDS 2000

extern char cr4_set_end[];

static volatile sig_atomic_t refused;

/* An interrupt came first: writing CR4 is no longer allowed. Go on behind it. */
static void skip(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	(void)info;
	refused++;
	((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] = (greg_t)cr4_set_end;
}

static unsigned long supported(void)
{
	return (processor_has("smep") ? SMEP : 0) | (processor_has("smap") ? SMAP : 0) |
	       (processor_has("lass") ? LASS : 0);
}

/* Sets bits of CR4, then reads and writes memory, jumps and calls. */
static __attribute__((noinline)) unsigned long set_and_go_on(unsigned long bits,
							      volatile unsigned long *memory)
{
	__asm__ volatile("mov %%cr4, %%rax\n\t"
			 "or %0, %%rax\n\t"
			 "mov %%rax, %%cr4\n\t"
			 ".globl cr4_set_end\n"
			 "cr4_set_end:\n\t"
			 "jmp 1f\n"
			 "1:	incq %1"
			 :
			 : "r"(bits), "m"(*memory)
			 : "rax", "memory", "cc");
	return *memory;
}

int main(void)
{
	struct sigaction action = { .sa_sigaction = skip, .sa_flags = SA_SIGINFO };
	unsigned long sets[SETS] = { SMEP, SMAP, SMEP | SMAP, LASS, SMEP | SMAP | LASS };
	unsigned long bits = supported();
	volatile unsigned long memory = 0;
	long pid = getpid(), inside = 0;

	if (!bits)
		SKIP("this processor has neither SMEP nor SMAP");
	MUST(sigaction(SIGSEGV, &action, NULL));
	enter_supervisor(0);
	for (unsigned long i = 0; i < ROUNDS; i++) {
		reach_supervisor();
		CHECK_EQ(set_and_go_on(sets[i % SETS] & bits, &memory), i + 1);
		CHECK_EQ(sys(SYS_getpid), pid);
		inside += cpl() == 0;
	}
	CHECK_WITHIN(refused, 0, ROUNDS / 20);
	CHECK_WITHIN(inside, MOST(ROUNDS) - refused, ROUNDS);
	return 0;
}
