// SPDX-License-Identifier: GPL-2.0-only
/*
 * Without the module every function of supervisor mode says so, whatever it is asked, takes no
 * descriptor and leaves errno alone.
 */
#include "lib_check.h"

#define MARK 4711

int main(void)
{
	struct tl_supervisor info = { .size = sizeof(info), .refusals = MARK };
	enum tl_refusal why = TL_REFUSED_VCPU;
	struct tl_process process = { .pid = MARK };
	int lowest;

	if (!access(TL_DEVICE, F_OK))
		SKIP("the module is loaded");
	lowest = MUST(dup(0));
	close(lowest);

	errno = MARK;
	CHECK_EQ(tl_switch_supervisor(0), -ENODEV);
	CHECK_EQ(tl_switch_user(0), -ENODEV);
	CHECK_EQ(tl_switch_supervisor(-1), -ESRCH);
	CHECK_EQ(tl_switch_user(1L << 32), -ESRCH);
	CHECK_EQ(tl_switch_mode(0, TL_MODE_SUPERVISOR, TL_SWITCH_FLAGS, &why), -ENODEV);
	CHECK_EQ(why, TL_REFUSED_NONE);
	CHECK_EQ(tl_switch_mode(0, TL_MODE_USER, 0, NULL), -ENODEV);
	CHECK_EQ(tl_supervisor_get(&info), -ENODEV);
	CHECK_EQ(info.refusals, MARK);
	CHECK_EQ(tl_process_list(&process, 1), -ENODEV);
	CHECK_EQ(process.pid, MARK);
	CHECK_EQ(errno, MARK);
	CHECK_EQ(MUST(dup(0)), lowest);
	return 0;
}
