// SPDX-License-Identifier: GPL-2.0-only
/*
 * Every call that the table refuses, and every number without a row, is answered without being
 * made; the calls known to be dangerous are among the refused.
 */
#include "calls.h"
#include "ring.h"

/* linux/unistd.h of older systems lacks it. */
#ifndef SYS_epoll_pwait2
#define SYS_epoll_pwait2 441
#endif

static const uint32_t dangerous[] = {
	SYS_execve, SYS_execveat, SYS_exit, SYS_exit_group, SYS_fork, SYS_vfork, SYS_clone,
	SYS_clone3, SYS_rt_sigreturn, SYS_restart_syscall, SYS_ptrace, SYS_seccomp, SYS_iopl,
	SYS_pselect6, SYS_ppoll, SYS_epoll_pwait, SYS_epoll_pwait2, SYS_rt_sigsuspend,
	SYS_sigaltstack,
};

int main(void)
{
	struct ring ring = ring_open(1);
	unsigned int asked = 0;

	for (size_t i = 0; i < sizeof(dangerous) / sizeof(*dangerous); i++) {
		const struct call *call = call_find(dangerous[i]);

		if (call && call->class != CALL_REFUSED)
			FAIL("%s may be wrapped according to the table", call->name);
	}
	for (uint32_t nr = 0; nr < 1024; nr++) {
		const struct call *call = call_find(nr);
		long result;

		if (call && call->class != CALL_REFUSED)
			continue;
		result = batch_call(&ring, nr);
		asked++;
		if (result != -EOPNOTSUPP && (result != -ENOSYS || (call && nr < 335)))
			FAIL("call %u (%s) gives %ld, expected -EOPNOTSUPP", nr,
			     call ? call->name : "no row", result);
	}
	CHECK_EQ(ring_stats(&ring).executed, 0);
	CHECK_EQ(ring_stats(&ring).refused, asked);
	return 0;
}
