// SPDX-License-Identifier: GPL-2.0-only
/*
 * The x87, SSE and AVX registers and their control words are a thread's own, whatever runs in
 * between: interrupts, calls that give up the CPU, other threads that fill the same registers in
 * either mode.
 */
#include "supervisor.h"

#define RUNNERS 3		/* on one CPU: two in supervisor mode, one in user mode */
#define ROUNDS 300
#define SPINS 20000L

struct vectors {
	uint64_t lanes[16][4];
	uint32_t control;		/* MXCSR */
	uint16_t x87_control, unused;
	uint64_t x87[2];		/* as doubles' bits: two deep on its stack */
} __attribute__((aligned(32)));

#define EACH_VECTOR(op) \
	op(0) op(1) op(2) op(3) op(4) op(5) op(6) op(7) \
	op(8) op(9) op(10) op(11) op(12) op(13) op(14) op(15)
#define LOAD_AVX(n) "vmovdqa 32*" #n "(%[in]), %%ymm" #n "\n\t"
#define STORE_AVX(n) "vmovdqa %%ymm" #n ", 32*" #n "(%[out])\n\t"
#define LOAD_SSE(n) "movdqa 32*" #n "(%[in]), %%xmm" #n "\n\t"
#define STORE_SSE(n) "movdqa %%xmm" #n ", 32*" #n "(%[out])\n\t"
#define CLOBBERED(n) , "xmm" #n

/*
 * Loads all of `in`, spins, makes the call three times, reads CS, spins, stores what it finds to
 * `out`. One string of assembly, for no compiler keeps its hands off so many registers.
 */
#define ROUND(load, store) __asm__ volatile(					\
	EACH_VECTOR(load)							\
	"ldmxcsr 512(%[in])\n\t"						\
	"fninit\n\t"								\
	"fldcw 516(%[in])\n\t"							\
	"fldl 520(%[in])\n\t"							\
	"fldl 528(%[in])\n\t"							\
	"mov %[spins], %%r13\n"							\
	"1:	dec %%r13\n\t"							\
	"jnz 1b\n\t"								\
	"mov $3, %%r13d\n"							\
	"2:	mov %[nr], %%eax\n\t"						\
	"syscall\n\t"								\
	"dec %%r13\n\t"								\
	"jnz 2b\n\t"								\
	"mov %%cs, %[cs]\n\t"							\
	"mov %[spins], %%r13\n"							\
	"3:	dec %%r13\n\t"							\
	"jnz 3b\n\t"								\
	"fstpl 528(%[out])\n\t"							\
	"fstpl 520(%[out])\n\t"							\
	"fnstcw 516(%[out])\n\t"						\
	"fninit\n\t"								\
	"stmxcsr 512(%[out])\n\t"						\
	EACH_VECTOR(store)							\
	"ldmxcsr %[plain]"							\
	: [cs] "=&r"(cs)								\
	: [in] "r"(in), [out] "r"(out), [spins] "r"(SPINS), [nr] "r"(nr), [plain] "m"(plain) \
	: "rax", "rcx", "r11", "r13", "cc", "memory" EACH_VECTOR(CLOBBERED))

/* Returns CS as the calls left it. The spin after them may take longer than a timer's period. */
static unsigned int round_trip(const struct vectors *in, struct vectors *out, int nr)
{
	static const uint32_t plain = 0x1f80;
	unsigned int cs;

	if (__builtin_cpu_supports("avx"))
		ROUND(LOAD_AVX, STORE_AVX);
	else
		ROUND(LOAD_SSE, STORE_SSE);
	return cs;
}

static struct vectors vectors_of(int runner, int round)
{
	static const uint16_t x87_controls[] = { 0x037f, 0x0b7f, 0x077f, 0x0f7f };
	struct vectors in = {
		.control = 0x1f80u | (uint32_t)(round & 3) << 13,	/* rounding */
		.x87_control = x87_controls[(round + runner) & 3],
	};
	double numbers[2] = { 1.5 * runner + round, -0.25 * round };
	int lanes = __builtin_cpu_supports("avx") ? 4 : 2;

	for (int i = 0; i < 16; i++)
		for (int k = 0; k < lanes; k++)
			in.lanes[i][k] = 0x0101010101010101u * (unsigned int)(i + 1) +
					 ((uint64_t)runner << 60) + (uint64_t)(round * 4 + k);
	memcpy(in.x87, numbers, sizeof(numbers));
	return in;
}

static void run(int runner)
{
	static const int calls[] = { SYS_getppid, SYS_sched_yield };
	long inside = 0;

	for (int round = 0; round < ROUNDS; round++) {
		struct vectors in = vectors_of(runner, round), out = { 0 };

		inside += (round_trip(&in, &out, calls[round % 2]) & 3) == 0;
		if (memcmp(&in, &out, sizeof(in)))
			FAIL("runner %d, round %d: registers changed", runner, round);
	}
	if (runner)
		CHECK_WITHIN(inside, MOST(ROUNDS), ROUNDS);
	else
		CHECK_EQ(inside, 0);
}

int main(void)
{
	pid_t children[RUNNERS];
	cpu_set_t one;

	supervisor_need();
	CPU_ZERO(&one);
	CPU_SET(0, &one);
	MUST(sched_setaffinity(0, sizeof(one), &one));
	for (int i = 0; i < RUNNERS; i++) {
		children[i] = MUST(fork());
		if (children[i] == 0) {
			if (i)
				enter_supervisor(0);
			run(i);
			_exit(0);
		}
	}
	for (int i = 0; i < RUNNERS; i++)
		CHECK_EXITED(child_wait(children[i]), 0);
	return 0;
}
