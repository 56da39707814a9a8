// SPDX-License-Identifier: GPL-2.0-only
/* The trap of 32-bit programs, by which getpid is called: see int80.h. */
#include "int80.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>

#define GETPID 20	/* of 32-bit programs */

static sigjmp_buf no_int;

static inline __attribute__((always_inline)) long by_int80(long nr)
{
	long result = -ENOSYS;

#ifdef __x86_64__
	__asm__ volatile("int $0x80" : "=a"(result) : "0"(nr)
			 : "r8", "r9", "r10", "r11", "memory");
#else
	(void)nr; /* other processors have no such trap */
#endif
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
		works = by_int80(GETPID) > 0;
	sigaction(SIGSEGV, &before, NULL);
	return works;
}

bool int80_getpids(unsigned int calls)
{
	long wrong = 0;

	for (unsigned int i = 0; i < calls; i++)
		wrong |= by_int80(GETPID) < 1;
	return !wrong;
}
