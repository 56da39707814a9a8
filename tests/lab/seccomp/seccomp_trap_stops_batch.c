// SPDX-License-Identifier: GPL-2.0-only
/*
 * A filter that traps stops the batch at its call; the handler sees the call that was trapped and
 * runs before the next request.
 */
#include "filter.h"
#include "ring.h"

static volatile int traps, trapped_nr, trapped_arch, trapped_code;

static void on_trap(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	(void)context;
	traps++;
	trapped_nr = info->si_syscall;
	trapped_arch = (int)info->si_arch;
	trapped_code = info->si_code;
}

int main(void)
{
	struct sigaction action = { .sa_sigaction = on_trap, .sa_flags = SA_SIGINFO };
	struct ring ring = ring_open(4);

	MUST(sigaction(SIGSYS, &action, NULL));
	filter_call(SYS_getuid, SECCOMP_RET_TRAP);
	ring_put(&ring, 0, SYS_getpid);
	ring_put(&ring, 1, SYS_getuid);
	ring_put(&ring, 2, SYS_getpid);
	ring_put(&ring, 3, SYS_getpid);
	CHECK_EQ(ring_batch(&ring, 0, 4), 2);
	CHECK_EQ(traps, 1);
	CHECK_EQ(trapped_nr, SYS_getuid);
	CHECK_EQ(trapped_arch, (int)FILTER_ARCH);
	CHECK_EQ(trapped_code, 1);	/* SYS_SECCOMP */
	CHECK_DONE(&ring, 0, getpid());
	CHECK_DONE(&ring, 1, -ENOSYS);
	CHECK_EQ(ring_state(&ring, 2), TL_SUBMITTED);
	CHECK_EQ(ring_batch(&ring, 2, 2), 2);
	CHECK_DONE(&ring, 3, getpid());
	CHECK_EQ(traps, 1);
	return 0;
}
