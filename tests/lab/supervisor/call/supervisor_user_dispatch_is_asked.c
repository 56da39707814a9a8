// SPDX-License-Identifier: GPL-2.0-only
/*
 * A thread that has its calls dispatched to user space (as Wine does) gets its signal for each
 * blocked call, in supervisor mode as in user mode, and is back in supervisor mode when the
 * dispatch ends.
 */
#include <sys/prctl.h>
#include <ucontext.h>

#include "supervisor.h"

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif
#define ALLOW 0
#define BLOCK 1
#define ROUNDS 500

static volatile char selector = ALLOW;
static volatile int dispatched;

static void answer(int signal, siginfo_t *info, void *context)
{
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;

	(void)signal;
	selector = ALLOW;	/* the return from here is a call, too */
	CHECK_EQ(info->si_syscall, SYS_getpid);
	registers[REG_RAX] = 4711;
	dispatched++;
}

int main(void)
{
	struct sigaction action = { .sa_sigaction = answer, .sa_flags = SA_SIGINFO };
	long pid = getpid();

	enter_supervisor(0);
	MUST(sigaction(SIGSYS, &action, NULL));
	if (prctl(PR_SET_SYSCALL_USER_DISPATCH, 1, 0, 0, &selector) < 0)
		SKIP("no system-call user dispatch: %s", strerror(errno));
	for (int i = 0; i < ROUNDS; i++) {
		selector = BLOCK;
		CHECK_EQ(sys(SYS_getpid), 4711);
		CHECK_EQ(dispatched, i + 1);
		CHECK_EQ(sys(SYS_getpid), pid);
		CHECK_EQ(cpl(), 3);
	}
	MUST(prctl(PR_SET_SYSCALL_USER_DISPATCH, 0, 0, 0, 0));
	reach_supervisor();
	return 0;
}
