// SPDX-License-Identifier: GPL-2.0-only
/* The trap of 32-bit programs as a subject of the estimate: see int80.h. */
#include "int80.h"

#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#define GETPID 20	/* of 32-bit programs */

static sigjmp_buf no_int;

static long trap(long nr)
{
	long result;

	__asm__ volatile("int $0x80" : "=a"(result) : "0"(nr)
			 : "r8", "r9", "r10", "r11", "memory");
	return result;
}

static void on_fault(int signal)
{
	(void)signal;
	siglongjmp(no_int, 1);
}

bool int80_works(void)
{
	struct sigaction fault = { .sa_handler = on_fault }, before;
	volatile bool works = false;

	sigaction(SIGSEGV, &fault, &before);
	if (!sigsetjmp(no_int, 1))
		works = trap(GETPID) > 0;
	sigaction(SIGSEGV, &before, NULL);
	if (!works)
		puts("{\"absent\": \"int80\", \"why\": \"the kernel has no 32-bit calls\"}");
	return works;
}

void int80_run(const struct subject *subject, unsigned int calls)
{
	long wrong = 0;

	for (unsigned int i = 0; i < calls; i++)
		wrong |= trap(GETPID) < 1;
	if (wrong) {
		fprintf(stderr, "trapless-estimate: %s: wrong results\n", subject->name);
		exit(1);
	}
}
