// SPDX-License-Identifier: GPL-2.0-only
/*
 * Whoever filters a thread is asked about getdents64 and statx: a batch and a program stop before
 * TL_NR_SCANDIR as for a tracer, and the filter is not asked about the number. A worker with a
 * filter answers that there is no such call.
 */
#include "filter.h"
#include "scan.h"

static char entries[2000] __attribute__((aligned(8)));

static void in_a_batch(void)
{
	struct ring ring = ring_open(2);
	struct tl_program *program = (void *)&ring.requests[2];

	/* Whoever asks a filter about the number ends here. */
	filter_call(TL_NR_SCANDIR, SECCOMP_RET_KILL_PROCESS);
	ring_put(&ring, 0, SYS_getpid);
	ring_put(&ring, 1, TL_NR_SCANDIR, open_directory("/"), entries, sizeof(entries));
	CHECK_EQ(ring_batch(&ring, 0, 2), 1);
	CHECK_EQ(program->stopped, TL_STOPPED_BUSY);
	CHECK_EQ(ring_state(&ring, 1), TL_SUBMITTED);
	CHECK_EQ(ring_batch(&ring, 1, 1), -EBUSY);

	ring_put(&ring, 0, SYS_getpid);
	program->at = 0;
	program->steps = 10;
	CHECK_EQ(enter(&ring, 2, TL_ENTER_PROGRAM), 1);
	CHECK_EQ(program->at, 1);
	CHECK_EQ(program->stopped, TL_STOPPED_BUSY);
}

static void by_a_worker(void)
{
	struct ring ring = worker_ring_open(2);
	struct worker worker = { 0 };

	filter_call(TL_NR_SCANDIR, SECCOMP_RET_KILL_PROCESS);
	worker_start(&worker, &ring);
	ring_queue(&ring, 0, TL_NR_SCANDIR, open_directory("/"), entries, sizeof(entries));
	ring_queue(&ring, 1, SYS_getpid);
	CHECK_EQ(ring_wait(&ring, 2, 0), 0);
	CHECK_DONE(&ring, 0, -ENOSYS);
	CHECK_DONE(&ring, 1, getpid());
	workers_end(&ring, &worker, 1);
}

int main(void)
{
	CHECK_EXITED(child_wait(child_start(in_a_batch)), 0);
	CHECK_EXITED(child_wait(child_start(by_a_worker)), 0);
	return 0;
}
