/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A group of processes that has more memory than its memory.high waits on its way to user mode. A
 * worker goes there for it, so that requests are no way round the limit: it returns -EINTR, and
 * enters again.
 */
#include "cgroup.h"
#include "ring.h"

#define HIGH "2097152"
#define PIECE (256 * 1024)
#define PIECES 64

static void write_by_worker(void)
{
	struct worker worker = { .again = true };
	struct ring ring = worker_ring_open(4);
	static char piece[PIECE];
	int fd = MUST((int)sys(SYS_memfd_create, "much", 0));

	cgroup_enter();
	memset(piece, 1, sizeof(piece));
	worker_start(&worker, &ring);
	for (int i = 0; i < PIECES && !ring_stats(&ring).interrupted; i++) {
		ring_queue(&ring, 0, SYS_write, fd, piece, sizeof(piece));
		CHECK_EQ(ring_notify(&ring, 1), 1);
		wait_done(&ring, 0);
		CHECK_DONE(&ring, 0, sizeof(piece));
	}
	CHECK(ring_stats(&ring).interrupted > 0);
	workers_end(&ring, &worker, 1);
}

int main(void)
{
	int status;

	cgroup_make("134217728");
	CHECK(write_file(CGROUP "/memory.high", HIGH) > 0);
	status = child_run(write_by_worker);
	cgroup_remove();
	CHECK_CHILD(status);
	return 0;
}
