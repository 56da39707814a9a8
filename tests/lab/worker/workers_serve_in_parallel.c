// SPDX-License-Identifier: GPL-2.0-only
/* Three workers: two sleep in reads, the third goes on serving; the requester is never blocked. */
#include "ring.h"

int main(void)
{
	struct ring ring = worker_ring_open(8);
	struct worker workers[3] = { 0 };
	int first[2], second[2];
	char bytes[2] = "";

	MUST(pipe(first));
	MUST(pipe(second));
	for (int i = 0; i < 3; i++) {
		worker_start(&workers[i], &ring);
		wait_asleep(workers[i].tid);
	}
	ring_queue(&ring, 0, SYS_read, first[0], &bytes[0], 1);
	ring_queue(&ring, 1, SYS_read, second[0], &bytes[1], 1);
	ring_queue(&ring, 2, SYS_getpid);
	CHECK_EQ(ring_notify(&ring, 3), 3);	/* returns: the reads do not yet */
	wait_done(&ring, 2);
	CHECK_DONE(&ring, 2, getpid());

	for (unsigned int slot = 3; slot < 8; slot++)
		ring_queue(&ring, slot, SYS_getppid);
	CHECK_EQ(ring_wait(&ring, 5, 2), 2);
	for (unsigned int slot = 3; slot < 8; slot++)
		CHECK_DONE(&ring, slot, getppid());
	CHECK_EQ(ring_state(&ring, 0), TL_RUNNING);
	CHECK_EQ(ring_state(&ring, 1), TL_RUNNING);

	CHECK_EQ(write(second[1], "2", 1), 1);
	CHECK_EQ(ring_wait(&ring, 0, 1), 1);
	CHECK_DONE(&ring, 1, 1);
	CHECK_EQ(ring_state(&ring, 0), TL_RUNNING);
	CHECK_EQ(write(first[1], "1", 1), 1);
	CHECK_EQ(ring_wait(&ring, 0, 0), 0);
	CHECK_DONE(&ring, 0, 1);
	CHECK(!memcmp(bytes, "12", 2));
	CHECK_EQ(ring_stats(&ring).executed, 8);
	workers_end(&ring, workers, 3);
	CHECK_EQ(workers[0].result + workers[1].result + workers[2].result, 8);
	return 0;
}
