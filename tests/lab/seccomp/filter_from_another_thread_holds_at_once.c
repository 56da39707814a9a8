// SPDX-License-Identifier: GPL-2.0-only
/*
 * A thread sleeps in a batch when another gives all threads a filter: the next request of the
 * batch is under it.
 */
#include "filter.h"
#include "ring.h"

int main(void)
{
	struct ring ring = ring_open(4);
	struct caller caller;
	int pipe_fd[2];
	char byte;

	MUST(pipe(pipe_fd));
	ring_put(&ring, 0, SYS_getppid);
	ring_put(&ring, 1, SYS_read, pipe_fd[0], &byte, 1);
	ring_put(&ring, 2, SYS_getppid);
	ring_put(&ring, 3, SYS_getpid);
	caller_start(&caller, &ring, 4, TL_ENTER_BATCH);
	filter_install(SYS_getppid, FILTER_ANY_ARGUMENT, SECCOMP_RET_ERRNO | EACCES,
		       SECCOMP_FILTER_FLAG_TSYNC);
	CHECK_EQ(write(pipe_fd[1], "x", 1), 1);
	CHECK_EQ(caller_join(&caller), 4);
	CHECK(ring_result(&ring, 0) > 0);
	CHECK_DONE(&ring, 1, 1);
	CHECK_DONE(&ring, 2, -EACCES);
	CHECK_DONE(&ring, 3, getpid());
	return 0;
}
