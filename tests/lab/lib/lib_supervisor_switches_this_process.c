// SPDX-License-Identifier: GPL-2.0-only
/*
 * tl_switch_supervisor(0) and tl_switch_user(0) switch their own process, any number of times, and
 * leave errno alone.
 */
#include "lib_supervisor.h"

int main(void)
{
	enum tl_refusal why = TL_REFUSED_VCPU;

	lib_supervisor_need();
	CHECK_EQ(calls_inside(), 0);
	errno = 4711;
	for (int i = 0; i < 20; i++) {
		CHECK_EQ(tl_switch_supervisor(0), 0);
		CHECK_WITHIN(calls_inside(), MOST_CALLS, CALLS);
		CHECK_EQ(tl_switch_user(0), 0);
		CHECK_EQ(calls_inside(), 0);
	}
	CHECK_EQ(tl_switch_mode(getpid(), TL_MODE_SUPERVISOR, 0, &why), 0);
	CHECK_EQ(why, TL_REFUSED_NONE);
	CHECK_EQ(tl_switch_supervisor(getpid()), 0);
	CHECK_WITHIN(calls_inside(), MOST_CALLS, CALLS);
	CHECK_EQ(tl_switch_user(getpid()), 0);
	CHECK_EQ(tl_switch_user(0), 0);
	CHECK_EQ(calls_inside(), 0);
	CHECK_EQ(errno, 4711);
	CHECK_EQ(device_descriptors(NULL), 1);
	return 0;
}
