// SPDX-License-Identifier: GPL-2.0-only
/* A filter that kills the process kills it at the batched call; what follows does not run. */
#include "filter.h"
#include "ring.h"

static int pipe_fd[2];

static void batch_forbidden(uint32_t action)
{
	struct ring ring = ring_open(4);
	long done;

	filter_call(SYS_getppid, action);
	ring_put(&ring, 0, SYS_write, pipe_fd[1], "1", 1);
	ring_put(&ring, 1, SYS_getppid);
	ring_put(&ring, 2, SYS_write, pipe_fd[1], "2", 1);
	done = ring_batch(&ring, 0, 3);
	FAIL("survived: the batch returned %ld", done);
}

static void kill_process(void)
{
	batch_forbidden(SECCOMP_RET_KILL_PROCESS);
}

static void kill_thread(void)
{
	batch_forbidden(SECCOMP_RET_KILL_THREAD);
}

int main(void)
{
	char bytes[8];

	MUST(pipe2(pipe_fd, O_NONBLOCK));
	CHECK_KILLED(child_run(kill_process), SIGSYS);
	CHECK_EQ(read(pipe_fd[0], bytes, sizeof(bytes)), 1);
	CHECK_KILLED(child_run(kill_thread), SIGSYS);
	CHECK_EQ(read(pipe_fd[0], bytes, sizeof(bytes)), 1);
	return 0;
}
