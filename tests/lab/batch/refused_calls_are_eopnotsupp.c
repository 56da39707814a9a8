// SPDX-License-Identifier: GPL-2.0-only
/*
 * Every call that the table refuses, and every number without a row, is answered without being
 * made; the calls known to be dangerous are among the refused. A call that takes a signal mask is
 * made where that is null.
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
	SYS_rt_sigsuspend, SYS_sigaltstack,
};

/* The argument that is the mask, or leads to it. */
static const struct {
	uint32_t nr;
	unsigned int mask;
} masked[] = {
	{ SYS_pselect6, 5 }, { SYS_ppoll, 3 }, { SYS_epoll_pwait, 4 }, { SYS_epoll_pwait2, 4 },
	{ SYS_io_pgetevents, 5 },
};

/* Without a mask they are made; with one they are not, whether it can be read or not. */
static unsigned int refuse_masks(struct ring *ring)
{
	static uint64_t mask[2];
	unsigned int asked = 0;

	for (size_t i = 0; i < sizeof(masked) / sizeof(*masked); i++) {
		uint64_t addresses[] = { (uintptr_t)mask, 1, 1ul << 63 };

		CHECK(call_find(masked[i].nr)->class == CALL_NULL_MASK);
		for (size_t k = 0; k < 3; k++, asked++) {
			uint64_t args[6] = { 0 };

			args[masked[i].mask] = addresses[k];
			CHECK_EQ(batch_call(ring, masked[i].nr, args[0], args[1], args[2], args[3],
					    args[4], args[5]), -EOPNOTSUPP);
		}
	}
	CHECK_EQ(ring_stats(ring).executed, 0);
	return asked;
}

static void make_without_mask(struct ring *ring)
{
	struct timespec none = { 0 };
	uint64_t before = ring_stats(ring).executed;

	CHECK_EQ(batch_call(ring, SYS_ppoll, 0, 0, &none, 0, 8), 0);
	CHECK_EQ(batch_call(ring, SYS_pselect6, 0, 0, 0, 0, &none, 0), 0);
	CHECK_EQ(batch_call(ring, SYS_epoll_pwait, -1, 0, 1, 0, 0, 8),
		 sys(SYS_epoll_pwait, -1, 0, 1, 0, 0, 8));
	CHECK_EQ(batch_call(ring, SYS_epoll_pwait2, -1, 0, 1, 0, 0, 8),
		 sys(SYS_epoll_pwait2, -1, 0, 1, 0, 0, 8));
	CHECK_EQ(batch_call(ring, SYS_io_pgetevents, 0, 0, 0, 0, 0, 0),
		 sys(SYS_io_pgetevents, 0, 0, 0, 0, 0, 0));
	CHECK_EQ(ring_stats(ring).executed, before + 5);
}

int main(void)
{
	struct ring ring = ring_open(1);
	unsigned int asked = 0;

	for (size_t i = 0; i < sizeof(dangerous) / sizeof(*dangerous); i++) {
		const struct call *call = call_find(dangerous[i]);

		if (call && call->class != CALL_REFUSED)
			FAIL("%s may be wrapped according to the table", call->name);
	}
	asked = refuse_masks(&ring);
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
	make_without_mask(&ring);
	return 0;
}
