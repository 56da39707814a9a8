// SPDX-License-Identifier: GPL-2.0-only
/*
 * Interrupts taken in supervisor mode leave the 128 bytes below the stack pointer alone: a
 * processor that pushes its frame there, for want of a change of stack, would destroy them.
 */
#include "supervisor.h"

#define INTERRUPTS 50	/* at most one a round */
#define SPINS 20000

/* Writes a pattern to the red zone and looks at it for a while; 0, or the offset that changed. */
static __attribute__((noinline)) long red_zone_spin(long spins)
{
	long changed;

	__asm__ volatile("xor %k[changed], %k[changed]\n\t"
			 "mov $-128, %%rdx\n"
			 "1:	mov %%rdx, (%%rsp, %%rdx)\n\t"
			 "add $8, %%rdx\n\t"
			 "jnz 1b\n"
			 "2:	mov $-128, %%rdx\n"
			 "3:	cmp %%rdx, (%%rsp, %%rdx)\n\t"
			 "jne 4f\n\t"
			 "add $8, %%rdx\n\t"
			 "jnz 3b\n\t"
			 "dec %[spins]\n\t"
			 "jnz 2b\n\t"
			 "jmp 5f\n"
			 "4:	mov %%rdx, %[changed]\n"
			 "5:"
			 : [changed] "=&r"(changed), [spins] "+r"(spins)
			 :
			 : "rdx", "cc", "memory");
	return changed;
}

int main(void)
{
	struct tl_process before, now;
	uint64_t interrupts = 0;
	long inside = 0, rounds = 0;

	CHECK_EQ(red_zone_spin(SPINS), 0);
	enter_supervisor(0);
	before = process_counts(getpid());
	for (; interrupts < INTERRUPTS; rounds++) {
		reach_supervisor();
		inside += cpl() == 0;
		CHECK_EQ(red_zone_spin(SPINS), 0);
		now = process_counts(getpid());
		interrupts = demoted(&before, &now, TL_DEMOTED_INTERRUPT);
	}
	fprintf(stderr, "%llu interrupts in supervisor mode, %ld rounds\n",
		(unsigned long long)interrupts, rounds);
	CHECK_WITHIN(inside, rounds * 9 / 10, rounds);
	return 0;
}
