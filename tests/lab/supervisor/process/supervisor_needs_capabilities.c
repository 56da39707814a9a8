// SPDX-License-Identifier: GPL-2.0-only
/*
 * Whoever switches to supervisor mode has CAP_SYS_RAWIO and CAP_SYS_MODULE in the initial user
 * namespace; a target of another user or set-user-ID is refused with its reason. Going back needs
 * no capability for oneself; what the module tells about processes needs none at all.
 */
#include <linux/capability.h>
#include <sys/prctl.h>

#include "supervisor.h"

#define STRANGER 1000
#define OTHER 1001

static void drop(unsigned int capability)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct data[2];

	CHECK_EQ(sys(SYS_capget, &header, data), 0);
	data[capability / 32].effective &= ~(1u << capability % 32);
	CHECK_EQ(sys(SYS_capset, &header, data), 0);
}

static void check_refused(pid_t pid, long error, enum tl_refusal reason)
{
	struct tl_switch request = {
		.size = sizeof(request), .mode = TL_MODE_SUPERVISOR, .pid = pid,
	};

	CHECK_EQ(switch_ioctl(&request), error);
	CHECK_EQ(request.refusal, reason);
	sys(SYS_getppid);
	CHECK_EQ(cpl(), 3);
}

static void without_rawio(void)
{
	drop(CAP_SYS_RAWIO);
	check_refused(0, -EPERM, TL_REFUSED_NOT_CAPABLE);
}

static void without_module(void)
{
	drop(CAP_SYS_MODULE);
	check_refused(0, -EPERM, TL_REFUSED_NOT_CAPABLE);
}

static void as_stranger(void)
{
	CHECK_EQ(sys(SYS_setresuid, STRANGER, STRANGER, STRANGER), 0);
	check_refused(0, -EPERM, TL_REFUSED_NOT_CAPABLE);
	check_refused(getppid(), -EPERM, TL_REFUSED_NOT_CAPABLE);
	CHECK_EQ(supervisor_info().refusals, 0);
}

static void in_own_namespace(void)
{
	supervisor_fd();
	if (unshare(CLONE_NEWUSER) < 0)
		SKIP("no user namespaces: %s", strerror(errno));
	check_refused(0, -EPERM, TL_REFUSED_NOT_CAPABLE);
}

/* Capable of the mode, but not of meddling with other users' processes. */
static void without_ptrace(void)
{
	pid_t other = MUST(fork());

	if (other == 0) {
		CHECK_EQ(sys(SYS_setresuid, OTHER, OTHER, OTHER), 0);
		pause();
	}
	wait_asleep(other);
	drop(CAP_SYS_PTRACE);
	check_refused(other, -EPERM, TL_REFUSED_OTHER_USER);
	MUST(kill(other, SIGKILL));
	child_wait(other);
}

static void half_privileged_target(void)
{
	pid_t other = MUST(fork());

	if (other == 0) {
		CHECK_EQ(sys(SYS_setresuid, STRANGER, 0, 0), 0);
		MUST(prctl(PR_SET_DUMPABLE, 1));
		pause();
	}
	wait_asleep(other);
	check_refused(other, -EPERM, TL_REFUSED_PRIVILEGED);
	MUST(kill(other, SIGKILL));
	child_wait(other);
}

/* Taking the mode from others is for those who may give it; from oneself, for anyone. */
static void going_back(void)
{
	enter_supervisor(0);
	drop(CAP_SYS_RAWIO);
	reach_supervisor();
	CHECK_EQ(raw_switch_user(getppid()), -EPERM);
	enter_user();
	check_refused(0, -EPERM, TL_REFUSED_NOT_CAPABLE);
}

int main(void)
{
	supervisor_need();
	CHECK_EXITED(child_run(without_rawio), 0);
	CHECK_EXITED(child_run(without_module), 0);
	CHECK_EXITED(child_run(as_stranger), 0);
	CHECK_EXITED(child_run(without_ptrace), 0);
	CHECK_EXITED(child_run(half_privileged_target), 0);
	CHECK_EXITED(child_run(going_back), 0);
	CHECK_CHILD(child_run(in_own_namespace));
	CHECK_EQ(supervisor_info().processes, 0);
	return 0;
}
