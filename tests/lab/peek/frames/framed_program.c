// SPDX-License-Identifier: GPL-2.0-only
/*
 * Goes through functions with frame pointers to where it waits in a library, or with -DSPIN works
 * in user mode. It needs no C library, so that all of its frames are known.
 */

void library_waits(void);
void _start(void);

static __attribute__((noinline)) void program_inner(void)
{
#ifdef SPIN
	for (volatile long count = 0;; count = count + 1)
		;
#else
	library_waits();
#endif
	__asm__ volatile("");
}

static __attribute__((noinline)) void program_outer(void)
{
	program_inner();
	__asm__ volatile("");
}

void _start(void)
{
	program_outer();
	__asm__ volatile("");
}
