// SPDX-License-Identifier: GPL-2.0-only
/*
 * A handler with a stack of its own runs there in user mode, also when the fault is that the
 * program's stack is at its end; it may leave by siglongjmp() instead of returning.
 */
#include <setjmp.h>

#include "supervisor.h"

#define ROUNDS 50

static char handler_stack[65536];
static sigjmp_buf back;
static volatile uint16_t cs;

static void handle(int signal, siginfo_t *info, void *context)
{
	char here;

	(void)signal;
	(void)info;
	(void)context;
	CHECK_EQ(cpl(), 3);
	CHECK_WITHIN(&here - handler_stack, 0, sizeof(handler_stack));
	handled++;
	siglongjmp(back, 1);
}

/* A push on a stack of no pages at all, right after a call. */
static void overflow(void)
{
	__asm__ volatile("mov $110, %%eax\n\t"
			 "syscall\n\t"
			 "mov %%cs, %0\n\t"
			 "mov $0x2000, %%esp\n\t"
			 "push %%rax"
			 : "=m"(cs)
			 :
			 : "rax", "rcx", "r11", "memory");
	__builtin_unreachable();
}

int main(void)
{
	struct sigaction action = {
		.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER,
	};
	stack_t stack = { .ss_sp = handler_stack, .ss_size = sizeof(handler_stack) };
	volatile long inside = 0;

	MUST(sigaltstack(&stack, NULL));
	MUST(sigaction(SIGSEGV, &action, NULL));
	enter_supervisor(0);
	for (volatile int i = 0; i < ROUNDS; i++) {
		if (sigsetjmp(back, 1) == 0)
			overflow();
		inside += (cs & 3) == 0;
		CHECK_EQ(handled, i + 1);
	}
	CHECK_WITHIN(inside, ROUNDS * 8 / 10, ROUNDS);
	reach_supervisor();
	return 0;
}
