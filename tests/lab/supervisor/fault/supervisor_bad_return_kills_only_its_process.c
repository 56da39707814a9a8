// SPDX-License-Identifier: GPL-2.0-only
/*
 * A signal handler of a switched process spoils what it returns to, so that the kernel's own iret
 * faults, also on the stack that the kernel has for 16-bit stack segments. The process gets
 * SIGSEGV, as in user mode, and all others live.
 */
#include <asm/ldt.h>
#include <sys/ucontext.h>

#include "supervisor.h"

#define LDT_SELECTOR 7			/* entry 0, local, level 3 */
#define NO_SELECTOR 0x7ff3		/* beyond the end of the global table */

static const struct {
	const char *name;
	uint16_t cs, ss;
} spoils[] = {
	{ "code segment 0", 0, USER_SS },
	{ "no code segment", NO_SELECTOR, USER_SS },
	{ "no stack segment", USER_CS, NO_SELECTOR },
	{ "16-bit stack, code segment 0", 0, LDT_SELECTOR },
	{ "16-bit stack, no code segment", NO_SELECTOR, LDT_SELECTOR },
};

static size_t spoil;

static void handler(int signal, siginfo_t *info, void *context)
{
	greg_t *segments = &((ucontext_t *)context)->uc_mcontext.gregs[REG_CSGSFS];

	(void)signal;
	(void)info;
	*segments = (greg_t)spoils[spoil].cs | (greg_t)spoils[spoil].ss << 48;
}

static void return_badly(void)
{
	struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO };
	struct user_desc segment = { .limit = 0xffff, .contents = MODIFY_LDT_CONTENTS_DATA };

	if (sys(SYS_modify_ldt, 1, &segment, sizeof(segment)) == -ENOSYS)
		_exit(EXIT_SKIP);
	MUST(sigaction(SIGUSR1, &action, NULL));
	enter_supervisor(0);
	raise(SIGUSR1);
}

int main(void)
{
	supervisor_need();
	for (spoil = 0; spoil < sizeof(spoils) / sizeof(*spoils); spoil++) {
		int status = child_run(return_badly);

		if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SKIP)
			SKIP("this kernel has no modify_ldt");
		if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGSEGV)
			FAIL("%s: wait status is 0x%x", spoils[spoil].name, status);
	}
	return 0;
}
