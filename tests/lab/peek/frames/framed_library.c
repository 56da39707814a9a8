// SPDX-License-Identifier: GPL-2.0-only
/*
 * Waits in a library whose symbols are stripped but for those of the dynamic linker: peek names the
 * function that is exported, and shows the other one by its place in the file.
 */

#include <sys/syscall.h>

void library_waits(void);

static __attribute__((noinline)) void hidden_waits(void)
{
	/* On its stack, so that it has a frame: compilers make none for a function without one. */
	volatile struct {
		long seconds, nanoseconds;
	} duration = { 1000000, 0 };
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(SYS_nanosleep), "D"(&duration), "S"(0)
			 : "rcx", "r11", "memory");
}

void library_waits(void)
{
	for (;;)
		hidden_waits();
}
