// SPDX-License-Identifier: GPL-2.0-only
/*
 * A process in supervisor mode that confines itself, by strict mode or a filter, by prctl or
 * seccomp, for one thread or all, is confined from its very next call, which is judged like any
 * other's; and it is not in supervisor mode then. One that is confined is not switched.
 */
#include "filter.h"
#include "supervisor.h"

static void strict(void)
{
	enter_supervisor(0);
	CHECK_EQ(sys(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_STRICT), 0);
	CHECK_EQ(cpl(), 3);
	sys(SYS_write, STDERR_FILENO, "", 0);	/* still allowed */
	sys(SYS_getpid);
	sys(SYS_exit, EXIT_FAIL);
}

static void filter(void)
{
	enter_supervisor(0);
	filter_call(SYS_getpid, SECCOMP_RET_ERRNO | ENOTNAM);
	for (int i = 0; i < 1000; i++) {
		CHECK_EQ(sys(SYS_getpid), -ENOTNAM);
		CHECK_EQ(cpl(), 3);
		CHECK_EQ(sys(SYS_getppid), getppid());
	}
}

static void filter_kills(void)
{
	enter_supervisor(0);
	filter_call(SYS_getpid, SECCOMP_RET_KILL_PROCESS);
	sys(SYS_getpid);
}

static volatile bool installed;

static void *bystander(void *unused)
{
	long result = 0;

	(void)unused;
	while (!__atomic_load_n(&installed, __ATOMIC_ACQUIRE))
		sys(SYS_getppid);
	for (int i = 0; i < 1000; i++) {
		result = sys(SYS_getpid);
		CHECK_EQ(result, -ENOTNAM);
		CHECK_EQ(cpl(), 3);
	}
	return NULL;
}

/* A filter for all threads: those that are in supervisor mode on another CPU, too. */
static void filter_for_all(void)
{
	pthread_t threads[3];

	enter_supervisor(0);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, bystander, NULL), 0);
	sleep_ms(30);
	filter_install(SYS_getpid, FILTER_ANY_ARGUMENT, SECCOMP_RET_ERRNO | ENOTNAM,
		       SECCOMP_FILTER_FLAG_TSYNC);
	__atomic_store_n(&installed, true, __ATOMIC_RELEASE);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
}

static void confined_first(void)
{
	struct tl_switch request = { .size = sizeof(request), .mode = TL_MODE_SUPERVISOR };

	supervisor_fd();
	filter_call(SYS_getpid, SECCOMP_RET_ERRNO | ENOTNAM);
	CHECK_EQ(switch_ioctl(&request), -EPERM);
	CHECK_EQ(request.refusal, TL_REFUSED_CONFINED);
	sys(SYS_getppid);
	CHECK_EQ(cpl(), 3);
}

int main(void)
{
	supervisor_need();
	for (int i = 0; i < 20; i++) {
		CHECK_KILLED(child_run(strict), SIGKILL);
		CHECK_EXITED(child_run(filter), 0);
		CHECK_KILLED(child_run(filter_kills), SIGSYS);
		CHECK_EXITED(child_run(filter_for_all), 0);
		CHECK_EXITED(child_run(confined_first), 0);
	}
	return 0;
}
