// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a request closes is closed before the next request, as between two plain calls: a reader
 * in the same batch sees the end of the pipe, and a lock held by the closed file is free.
 */
#include <sys/file.h>

#include "ring.h"

int main(void)
{
	struct ring ring = ring_open(8), workers = worker_ring_open(8);
	struct worker worker = { 0 };
	int pipe_fd[2], held, wanted;
	char byte;

	on_signal(SIGALRM, count_signal, 0);	/* it ends a reader that would wait for ever */
	alarm_ms(15000, 0);

	MUST(pipe(pipe_fd));
	ring_put(&ring, 0, SYS_close, pipe_fd[1]);
	ring_put(&ring, 1, SYS_read, pipe_fd[0], &byte, 1);
	CHECK_EQ(ring_batch(&ring, 0, 2), 2);
	CHECK_DONE(&ring, 1, 0);

	held = MUST(open("lock", O_RDWR | O_CREAT, 0600));
	wanted = MUST(open("lock", O_RDWR));
	MUST(flock(held, LOCK_EX));
	ring_put(&ring, 0, SYS_flock, wanted, LOCK_EX | LOCK_NB);
	ring_put(&ring, 1, SYS_close, held);
	ring_put(&ring, 2, SYS_flock, wanted, LOCK_EX | LOCK_NB);
	CHECK_EQ(ring_batch(&ring, 0, 3), 3);
	CHECK_DONE(&ring, 0, -EWOULDBLOCK);
	CHECK_DONE(&ring, 2, 0);

	/* A worker never returns to user mode between two requests. */
	worker_start(&worker, &workers);
	MUST(pipe(pipe_fd));
	ring_queue(&workers, 0, SYS_close, pipe_fd[1]);
	CHECK_EQ(ring_wait(&workers, 1, 0), 0);
	CHECK_EQ(read(pipe_fd[0], &byte, 1), 0);
	workers_end(&workers, &worker, 1);
	return 0;
}
