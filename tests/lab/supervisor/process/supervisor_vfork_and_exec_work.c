// SPDX-License-Identifier: GPL-2.0-only
/*
 * While a vforked child borrows its parent's memory, one of them is in supervisor mode and the
 * other may not be: what the child changes the parent sees, and the exec of the child leaves the
 * parent in its mode. Many at once, from many threads.
 */
#include "supervisor.h"

#define THREADS 4
#define ROUNDS 20

static void *spawn_many(void *unused)
{
	(void)unused;
	for (int i = 0; i < ROUNDS; i++) {
		volatile int written = 0;
		pid_t pid = vfork();

		if (pid == 0) {
			written = 1;
			sys(SYS_getppid);
			execl("/proc/self/exe", program_invocation_short_name, (char *)NULL);
			_exit(99);
		}
		CHECK(pid > 0);
		CHECK_EQ(written, 1);
		CHECK_EXITED(child_wait(pid), 42);
		reach_supervisor();
	}
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];

	if (!strcmp(test_stage(), "child"))
		_exit(42);
	MUST(setenv("TL_TEST_STAGE", "child", 1));
	for (unsigned int flags = 0; flags <= TL_SWITCH_CHILDREN; flags += TL_SWITCH_CHILDREN) {
		enter_supervisor(flags);
		for (int i = 0; i < THREADS; i++)
			CHECK_EQ(pthread_create(&threads[i], NULL, spawn_many, NULL), 0);
		for (int i = 0; i < THREADS; i++)
			CHECK_EQ(pthread_join(threads[i], NULL), 0);
	}
	CHECK_EQ(supervisor_info().processes, 1);
	return 0;
}
