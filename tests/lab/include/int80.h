/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Makes system calls by the 32-bit gate, int $0x80, from a 64-bit program.
 */
#ifndef TL_TEST_INT80_H
#define TL_TEST_INT80_H

#include "ring.h"

#define INT80_GETPID 20
#define INT80_LSEEK 19

static inline long int80(int nr, int a0, int a1, int a2)
{
	int result;

	__asm__ volatile("int $0x80"
			 : "=a"(result)
			 : "a"(nr), "b"(a0), "c"(a1), "d"(a2)
			 : "r8", "r9", "r10", "r11", "memory");
	return result;
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
	return int80(INT80_LSEEK, ring->fd, (int)TL_BATCH(first, n), TL_ENTER_BATCH);
}

#endif /* TL_TEST_INT80_H */
