// SPDX-License-Identifier: GPL-2.0-only
/*
 * A handler of a fault that was taken in supervisor mode runs in user mode and finds what it
 * would find had the fault been a user's: CS and SS of user mode, the faulting instruction and
 * address, the error code of a user's access, all registers. It can repair and go on.
 */
#include <ucontext.h>

#include "supervisor.h"

#define ROUNDS 2000
#define PAGE_FAULT_USER 4ul
#define PAGE_FAULT_WRITE 2ul
#define MAGIC 0x1122334455667788l

extern char fault_at[], fault_after[];
void fault(volatile uint16_t *cs, long *address);

/* fault(cs, address): a call, CS written down, then 64 bits stored to address; keeps rbx. */
__asm__(".pushsection .text\n"
	".globl fault, fault_at, fault_after\n"
	"fault:\n\t"
	"push %rbx\n\t"
	"mov $0x1122334455667788, %rbx\n\t"
	"mov $110, %eax\n\t"		/* getppid */
	"syscall\n\t"
	"mov %cs, (%rdi)\n"
	"fault_at:\n\t"
	"mov %rbx, (%rsi)\n"
	"fault_after:\n\t"
	"pop %rbx\n\t"
	"ret\n"
	".popsection\n");

static long *const bad_address = (long *)0x123456789008;

static void repair(int signal, siginfo_t *info, void *context)
{
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;

	CHECK_EQ(cpl(), 3);
	CHECK_EQ(signal, SIGSEGV);
	CHECK_EQ(info->si_code, SEGV_MAPERR);
	CHECK_EQ(info->si_addr, bad_address);
	CHECK_EQ(registers[REG_CR2], bad_address);
	CHECK_EQ(registers[REG_TRAPNO], 14);
	CHECK_EQ(registers[REG_ERR], PAGE_FAULT_USER | PAGE_FAULT_WRITE);
	CHECK_EQ(registers[REG_CSGSFS] & 0xffff, USER_CS);
	CHECK_EQ(registers[REG_CSGSFS] >> 48 & 0xffff, USER_SS);
	CHECK_EQ(registers[REG_RIP], fault_at);
	CHECK_EQ(registers[REG_RBX], MAGIC);
	CHECK_EQ(registers[REG_RSI], bad_address);
	CHECK_EQ(registers[REG_EFL] & 0x200, 0x200);
	registers[REG_RIP] = (greg_t)fault_after;
	handled++;
}

int main(void)
{
	struct sigaction action = { .sa_sigaction = repair, .sa_flags = SA_SIGINFO };
	struct tl_process before, after;
	volatile uint16_t cs = USER_CS;
	long inside = 0;

	MUST(sigaction(SIGSEGV, &action, NULL));
	fault(&cs, bad_address);	/* as it is in user mode */
	CHECK_EQ(handled, 1);
	enter_supervisor(0);
	before = process_counts(getpid());
	for (int i = 0; i < ROUNDS; i++) {
		reach_supervisor();
		fault(&cs, bad_address);
		inside += (cs & 3) == 0;
	}
	after = process_counts(getpid());
	CHECK_EQ(handled, ROUNDS + 1);
	CHECK_WITHIN(inside, MOST(ROUNDS), ROUNDS);
	CHECK_WITHIN(demoted(&before, &after, TL_DEMOTED_PAGE_FAULT), inside, inside + 20);
	return 0;
}
