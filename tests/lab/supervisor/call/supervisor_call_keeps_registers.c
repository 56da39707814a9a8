// SPDX-License-Identifier: GPL-2.0-only
/*
 * Over a call every register has the value that the x86-64 convention gives it, and every flag is
 * kept: all but rax (the result), rcx (the address after the call) and r11 (the flags), with the
 * direction, alignment, nested-task and identification flags set or not, interrupts enabled.
 */
#include "random.h"
#include "supervisor.h"

#define ROUNDS 20000

enum { RAX, RBX, RCX, RDX, RSI, RDI, RBP, RSP, R8, R9, R10, R11, R12, R13, R14, R15, FLAGS,
       REGISTERS };

#define ARITHMETIC 0x8d5ul	/* CF PF AF ZF SF OF */
#define DF (1ul << 10)
#define NT (1ul << 14)
#define AC (1ul << 18)
#define ID (1ul << 21)
#define IF (1ul << 9)
#define ALWAYS (IF | 2ul)

uint64_t registers_in[REGISTERS], registers_out[REGISTERS];
extern char registers_called[];
void registers_call(void);

/*
 * registers_call: loads all of registers_in[] but rcx, rsp and r11, makes the call, stores what
 * it finds to registers_out[]. rsp is one of its own, left in registers_in[]. Clobbers what any
 * C function may.
 */
__asm__(".pushsection .text\n"
	".globl registers_call, registers_called\n"
	"registers_call:\n\t"
	"push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15\n\t"
	"mov %rsp, registers_in+8*7(%rip)\n\t"
	"mov registers_in+8*1(%rip), %rbx\n\t"
	"mov registers_in+8*3(%rip), %rdx\n\t"
	"mov registers_in+8*4(%rip), %rsi\n\t"
	"mov registers_in+8*5(%rip), %rdi\n\t"
	"mov registers_in+8*6(%rip), %rbp\n\t"
	"mov registers_in+8*8(%rip), %r8\n\t"
	"mov registers_in+8*9(%rip), %r9\n\t"
	"mov registers_in+8*10(%rip), %r10\n\t"
	"mov registers_in+8*12(%rip), %r12\n\t"
	"mov registers_in+8*13(%rip), %r13\n\t"
	"mov registers_in+8*14(%rip), %r14\n\t"
	"mov registers_in+8*15(%rip), %r15\n\t"
	"pushq registers_in+8*16(%rip)\n\t"
	"mov registers_in+8*0(%rip), %rax\n\t"
	"popfq\n\t"
	"syscall\n"
	"registers_called:\n\t"
	"mov %rsp, registers_out+8*7(%rip)\n\t"
	"pushfq\n\t"
	"popq registers_out+8*16(%rip)\n\t"
	"pushq $0x202\n\t"
	"popfq\n\t"
	"mov %rax, registers_out+8*0(%rip)\n\t"
	"mov %rbx, registers_out+8*1(%rip)\n\t"
	"mov %rcx, registers_out+8*2(%rip)\n\t"
	"mov %rdx, registers_out+8*3(%rip)\n\t"
	"mov %rsi, registers_out+8*4(%rip)\n\t"
	"mov %rdi, registers_out+8*5(%rip)\n\t"
	"mov %rbp, registers_out+8*6(%rip)\n\t"
	"mov %r8, registers_out+8*8(%rip)\n\t"
	"mov %r9, registers_out+8*9(%rip)\n\t"
	"mov %r10, registers_out+8*10(%rip)\n\t"
	"mov %r11, registers_out+8*11(%rip)\n\t"
	"mov %r12, registers_out+8*12(%rip)\n\t"
	"mov %r13, registers_out+8*13(%rip)\n\t"
	"mov %r14, registers_out+8*14(%rip)\n\t"
	"mov %r15, registers_out+8*15(%rip)\n\t"
	"pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx\n\t"
	"ret\n"
	".popsection\n");

static void check_round(struct random *random, uint64_t extra, long nr, long result)
{
	uint64_t want[REGISTERS];

	for (int i = 0; i < REGISTERS; i++)
		registers_in[i] = random_next(random);
	registers_in[RAX] = (uint64_t)nr;
	registers_in[FLAGS] = ALWAYS | (random_next(random) & ARITHMETIC) | extra;
	registers_call();
	memcpy(want, registers_in, sizeof(want));
	want[RAX] = (uint64_t)result;
	want[RCX] = (uint64_t)registers_called;
	want[R11] = want[FLAGS];
	for (int i = 0; i < REGISTERS; i++)
		if (registers_out[i] != want[i])
			FAIL("flags 0x%lx, call %ld: register %d is 0x%lx, expected 0x%lx",
			     (unsigned long)registers_in[FLAGS], nr, i,
			     (unsigned long)registers_out[i], (unsigned long)want[i]);
}

static long rounds(void)
{
	static const uint64_t extras[] = { 0, DF, ID, DF | ID, 0, AC, NT, DF | AC | NT | ID };
	struct random random = random_seeded(3);
	long parent = getppid(), inside = 0;

	for (int i = 0; i < ROUNDS; i++) {
		uint64_t extra = extras[i % 8];

		check_round(&random, extra, SYS_getppid, parent);
		if (!(extra & (AC | NT)))
			inside += cpl() == 0;
		check_round(&random, extra, 511, -ENOSYS);	/* a number without a call */
	}
	return inside;
}

int main(void)
{
	CHECK_EQ(rounds(), 0);	/* what is asked of supervisor mode holds in user mode */
	enter_supervisor(0);
	CHECK_WITHIN(rounds(), MOST(ROUNDS * 5 / 8), ROUNDS);
	return 0;
}
