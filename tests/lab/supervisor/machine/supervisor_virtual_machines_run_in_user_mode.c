// SPDX-License-Identifier: GPL-2.0-only
/*
 * A thread that asks KVM to run a guest is in user mode from that call on, whatever comes of it;
 * others of its process are not. Asked anew, it comes back.
 */
#include <linux/kvm.h>

#include "supervisor.h"

static int nothing;
static volatile bool ran;

static void expect_user_mode(void)
{
	for (int i = 0; i < REACH_CALLS; i++) {
		CHECK_EQ(sys(SYS_getppid), getppid());
		CHECK_EQ(cpl(), 3);
	}
}

static void *run_guest(void *unused)
{
	reach_supervisor();
	CHECK_EQ(sys(SYS_ioctl, nothing, KVM_RUN, 0), -ENOTTY);
	expect_user_mode();
	ran = true;
	return unused;
}

int main(void)
{
	pthread_t thread;

	nothing = MUST(open("/dev/null", O_RDWR));
	enter_supervisor(0);
	CHECK_EQ(pthread_create(&thread, NULL, run_guest, NULL), 0);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK(ran);
	reach_supervisor();
	CHECK_EQ(sys(SYS_ioctl, nothing, KVM_RUN, 0), -ENOTTY);
	expect_user_mode();
	CHECK_EQ(supervisor_info().processes, 0);
	enter_supervisor(0);
	CHECK_EQ(sys(SYS_ioctl, nothing, FIONREAD, &nothing), -ENOTTY);
	reach_supervisor();
	return 0;
}
