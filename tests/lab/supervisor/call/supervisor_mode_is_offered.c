// SPDX-License-Identifier: GPL-2.0-only
/*
 * The lab's machine and kernel are ones where supervisor mode works: no program below is skipped
 * unseen, but on a kernel for real time. The first switch taints the kernel, so that a report of an
 * oops tells.
 */
#include "supervisor.h"

int main(void)
{
	struct tl_supervisor info = supervisor_info();

	CHECK_EQ(info.size, sizeof(info));
	if (access("/sys/kernel/realtime", F_OK) == 0) {
		CHECK_EQ(info.refusals, 1 << TL_REFUSED_CONFIG);
		SKIP("supervisor mode is not for kernels with PREEMPT_RT");
	}
	CHECK_EQ(info.refusals, 0);
	CHECK_EQ(info.processes, 0);
	CHECK_EQ(cpl(), 3);
	enter_supervisor(0);
	CHECK_EQ(supervisor_info().processes, 1);
	CHECK_EQ(process_counts(getpid()).mode, TL_MODE_SUPERVISOR);
	CHECK_EQ(process_counts(getpid()).threads, 1);
	enter_user();
	CHECK_EQ(supervisor_info().processes, 0);
	for (int i = 0; i < 1000; i++) {
		sys(SYS_getppid);
		CHECK_EQ(cpl(), 3);
	}
	return 0;
}
