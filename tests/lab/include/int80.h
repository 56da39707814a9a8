/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Makes system calls by the 32-bit gate, int $0x80, from a 64-bit program.
 */
#ifndef TL_TEST_INT80_H
#define TL_TEST_INT80_H

#include "ring.h"

#define INT80_GETPID 20
#define INT80_LSEEK 19

/* The kernel keeps the registers that 32-bit programs do not have. */
static inline long int80_enter(int nr, int a0, int a1, int a2, uint64_t address, uint64_t argument,
			       uint64_t kind)
{
	register uint64_t r10 __asm__("r10") = address;
	register uint64_t r8 __asm__("r8") = argument;
	register uint64_t r9 __asm__("r9") = kind;
	int result;

	__asm__ volatile("int $0x80"
			 : "=a"(result), "+r"(r10), "+r"(r8), "+r"(r9)
			 : "a"(nr), "b"(a0), "c"(a1), "d"(a2)
			 : "r11", "memory");
	return result;
}

static inline long int80(int nr, int a0, int a1, int a2)
{
	return int80_enter(nr, a0, a1, a2, 0, 0, 0);
}

static inline void int80_try(void)
{
	signal(SIGSEGV, SIG_DFL);
	CHECK_EQ(int80(INT80_GETPID, 0, 0, 0), getpid());
}

static inline void int80_need(void)
{
	if (!WIFEXITED(child_run(int80_try)))
		SKIP("this kernel has no int $0x80");
}

static inline long ring_batch_int80(const struct ring *ring, unsigned int first, unsigned int n)
{
	return int80_enter(INT80_LSEEK, ring->fd, INT32_MAX, TL_ENTER_BATCH,
			   (uintptr_t)&ring->requests[first], n, 0);
}

#endif /* TL_TEST_INT80_H */
