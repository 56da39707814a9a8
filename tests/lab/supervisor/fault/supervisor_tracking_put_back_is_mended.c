// SPDX-License-Identifier: GPL-2.0-only
/*
 * A program in supervisor mode needs no marks (endbr64) at the targets of its jumps, also where the
 * kernel tracks indirect branches (IBT). If the tracking is set again under such a thread, its next
 * jump faults; nobody notices: the thread goes on, in user mode until its next call. (Here the
 * thread itself writes MSR_IA32_S_CET: it may.)
 */
#include <ucontext.h>

#include "supervisor.h"

#define ROUNDS 2000

extern char s_cet_set_end[];

static volatile sig_atomic_t refused;

/* An interrupt came first: writing the register is no longer allowed. Go on behind it. */
static void skip(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	(void)info;
	refused++;
	((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] = (greg_t)s_cet_set_end;
}

/* Sets ENDBR_EN where asked to, then jumps to a place without a mark, which returns 7. */
static __attribute__((noinline)) int jump(bool track)
{
	int result;

	__asm__ volatile("test %1, %1\n\t"
			 "jz s_cet_set_end\n\t"
			 "mov $0x6a2, %%ecx\n\t"
			 "mov $4, %%eax\n\t"
			 "xor %%edx, %%edx\n\t"
			 "wrmsr\n\t"
			 ".globl s_cet_set_end\n"
			 "s_cet_set_end:\n\t"
			 "lea 1f(%%rip), %%rax\n\t"
			 "jmp *%%rax\n\t"
			 "ud2\n"
			 "1:	mov $7, %0"
			 : "=r"(result)
			 : "r"((int)track)
			 : "rax", "rcx", "rdx", "memory", "cc");
	return result;
}

int main(void)
{
	struct sigaction action = { .sa_sigaction = skip, .sa_flags = SA_SIGINFO };
	long pid = getpid(), inside = 0;

	if (!processor_has("ibt"))
		SKIP("this processor or kernel does not track indirect branches");
	MUST(sigaction(SIGSEGV, &action, NULL));
	enter_supervisor(0);
	for (unsigned int i = 0; i < ROUNDS; i++) {
		reach_supervisor();
		CHECK_EQ(jump(i % 2), 7);
		CHECK_EQ(sys(SYS_getpid), pid);
		inside += cpl() == 0;
	}
	CHECK_WITHIN(refused, 0, ROUNDS / 20);
	CHECK_WITHIN(inside, MOST(ROUNDS) - refused, ROUNDS);
	return 0;
}
