// SPDX-License-Identifier: GPL-2.0-only
/*
 * Other threads fork while a batch sleeps, and one executes a program: the children run, the
 * batch's thread ends with the old program, the new one starts clean.
 */
#include "ring.h"

static void child(void)
{
	struct ring own = ring_open(4);

	CHECK_EQ(batch_call(&own, SYS_getpid), getpid());
}

static void forker(void)
{
	struct ring ring = ring_open(2);
	struct caller caller;
	int pipe_fd[2];
	char byte;

	MUST(pipe(pipe_fd));
	ring_put(&ring, 0, SYS_read, pipe_fd[0], &byte, 1);
	ring_put(&ring, 1, SYS_read, pipe_fd[0], &byte, 1);
	caller_start(&caller, &ring, 2, TL_ENTER_BATCH);
	for (int i = 0; i < 5; i++)
		CHECK_EXITED(child_run(child), 0);
	CHECK_EQ(ring_state(&ring, 0), TL_SUBMITTED);	/* nothing was written: it still waits */
	exec_stage("after");
}

int main(void)
{
	if (!strcmp(test_stage(), "after")) {
		child();
		return 0;
	}
	CHECK_EXITED(child_run(forker), 0);
	return 0;
}
