// SPDX-License-Identifier: GPL-2.0-only
/*
 * While a thread's calls are dispatched to user space, batches are -EBUSY, even where the selector
 * lets calls pass.
 */
#include <sys/prctl.h>

#include "ring.h"

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif

int main(void)
{
	static volatile char selector;	/* 0: SYSCALL_DISPATCH_FILTER_ALLOW */
	struct ring ring = ring_open(4);

	ring_put(&ring, 0, SYS_getpid);
	if (prctl(PR_SET_SYSCALL_USER_DISPATCH, 1, 0, 0, &selector) < 0)
		SKIP("no system-call user dispatch: %s", strerror(errno));
	CHECK_EQ(ring_batch(&ring, 0, 1), -EBUSY);
	CHECK_EQ(ring_state(&ring, 0), TL_SUBMITTED);
	MUST(prctl(PR_SET_SYSCALL_USER_DISPATCH, 0, 0, 0, 0));
	CHECK_EQ(ring_batch(&ring, 0, 1), 1);
	CHECK_DONE(&ring, 0, getpid());
	CHECK_EQ(ring_stats(&ring).bypassed, 1);
	return 0;
}
