// SPDX-License-Identifier: GPL-2.0-only
/*
 * A refusal names its reason and its error says of which kind it is; other errors have none. A
 * refused switch changes nothing.
 */
#include <sys/prctl.h>

#include "lib_supervisor.h"

#define NOBODY 65534
#define KTHREADD 2

static enum tl_refusal why;

static int to_supervisor(pid_t pid)
{
	why = TL_REFUSED_VCPU;
	return tl_switch_mode(pid, TL_MODE_SUPERVISOR, 0, &why);
}

static void check_errors_have_no_reason(void)
{
	CHECK_EQ(to_supervisor(0x3fffffff), -ESRCH);
	CHECK_EQ(why, TL_REFUSED_NONE);
	CHECK_EQ(tl_switch_mode(0, (enum tl_mode)2, 0, &why), -EINVAL);
	CHECK_EQ(why, TL_REFUSED_NONE);
	CHECK_EQ(tl_switch_mode(0, TL_MODE_SUPERVISOR, TL_SWITCH_FLAGS + 1, &why), -EINVAL);
	CHECK_EQ(tl_switch_mode(0, TL_MODE_USER, TL_SWITCH_CHILDREN, &why), -EINVAL);
	CHECK_EQ(why, TL_REFUSED_NONE);
	CHECK_EQ(tl_switch_supervisor(-1), -ESRCH);
	CHECK_EQ(tl_switch_supervisor(1L << 32), -ESRCH);
	CHECK_EQ(tl_switch_user(1L << 32), -ESRCH);
}

static void without_capability(void)
{
	int fd = -1;

	/* Root opened it: the caller is asked, not who opened. */
	CHECK_EQ(device_descriptors(&fd), 1);
	MUST(setresuid(NOBODY, NOBODY, NOBODY));
	CHECK_EQ(to_supervisor(0), -EPERM);
	CHECK_EQ(why, TL_REFUSED_NOT_CAPABLE);
	CHECK_EQ(tl_switch_supervisor(0), -EPERM);
	CHECK_EQ(calls_inside(), 0);
}

static void confined(void)
{
	/* SECCOMP_RET_ALLOW for everything: a filter all the same. */
	struct { unsigned short code; unsigned char jt, jf; unsigned int k; } allow = {
		0x06, 0, 0, 0x7fff0000
	};
	struct { unsigned short len; void *filter; } program = { 1, &allow };

	MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	MUST(prctl(PR_SET_SECCOMP, 2, &program));
	CHECK_EQ(to_supervisor(0), -EPERM);
	CHECK_EQ(why, TL_REFUSED_CONFINED);
	CHECK_EQ(calls_inside(), 0);
}

int main(void)
{
	lib_supervisor_need();
	check_errors_have_no_reason();
	CHECK_EQ(to_supervisor(KTHREADD), -ENOEXEC);
	CHECK_EQ(why, TL_REFUSED_KERNEL_THREAD);
	CHECK_CHILD(child_run(without_capability));
	CHECK_CHILD(child_run(confined));
	CHECK_EQ(calls_inside(), 0);
	return 0;
}
