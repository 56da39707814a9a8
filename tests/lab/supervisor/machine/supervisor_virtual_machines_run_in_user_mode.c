// SPDX-License-Identifier: GPL-2.0-only
/*
 * A thread that asks KVM to run a guest is in user mode from that call on, whatever comes of it;
 * others of its process are not. Asked anew, it comes back. A thread that loads a module is in user
 * mode as well: that of KVM takes the interrupt table that it finds for the kernel's.
 */
#include <linux/kvm.h>

#include "supervisor.h"

#define OTHER_MODULE "/nmi_storm.ko"

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

static void load_module(void)
{
	int file = open(OTHER_MODULE, O_RDONLY);

	if (file < 0)
		return;
	enter_supervisor(0);
	reach_supervisor();
	CHECK_EQ(sys(SYS_finit_module, file, "period_us=1000000", 0), 0);
	expect_user_mode();
	CHECK_EQ(supervisor_info().processes, 0);
	CHECK_EQ(sys(SYS_delete_module, "nmi_storm", O_NONBLOCK), 0);
	close(file);
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
	load_module();
	return 0;
}
