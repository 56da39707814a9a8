// SPDX-License-Identifier: GPL-2.0-only
/*
 * A child switches itself over the descriptor it inherited, from fork as from vfork; what it does
 * to the number does not disturb its parent; the program after exec inherits nothing.
 */
#include "lib_supervisor.h"

static void switch_itself(void)
{
	CHECK_EQ(device_descriptors(NULL), 1);
	CHECK_EQ(tl_switch_supervisor(0), 0);
	CHECK_WITHIN(calls_inside(), MOST_CALLS, CALLS);
	CHECK_EQ(device_descriptors(NULL), 1);
}

static void close_and_switch(void)
{
	int fd = -1;

	CHECK_EQ(device_descriptors(&fd), 1);
	close(fd);
	CHECK_EQ(tl_switch_supervisor(0), 0);
	CHECK_WITHIN(calls_inside(), MOST_CALLS, CALLS);
}

static void exec_again(void)
{
	exec_stage("after exec");
}

/* It shares the parent's memory but not its descriptors. */
static int __attribute__((noinline)) vfork_and_close(int fd)
{
	struct tl_supervisor info = { .size = sizeof(info) };
	int status;
	pid_t pid = vfork();

	if (pid == 0) {
		for (int i = 0; i < 8; i++)
			dup(0);	/* so that the new number is not the old one */
		close(fd);
		_exit(tl_supervisor_get(&info) ? 1 : 0);
	}
	CHECK(pid > 0);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	return status;
}

int main(void)
{
	int fd = -1;

	if (*test_stage()) {
		CHECK_EQ(device_descriptors(NULL), 0);
		return 0;
	}
	lib_supervisor_need();
	CHECK_CHILD(child_run(switch_itself));
	CHECK_EQ(calls_inside(), 0);
	CHECK_CHILD(child_run(close_and_switch));
	CHECK_CHILD(child_run(exec_again));
	CHECK_EQ(device_descriptors(&fd), 1);
	CHECK_CHILD(vfork_and_close(fd));
	switch_itself();
	return 0;
}
