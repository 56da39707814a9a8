/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Some calls return what they were given: lseek() on /proc/self/mem, at negative offsets. Results
 * that equal the kernel's internal codes of restart, or the module's own of refusal, are results
 * like any other, in batches and by workers, as long as no signal is pending.
 */
#include "ring.h"

#define FIRST -505L
#define LAST -535L

static int memory;

static void in_batch(long code)
{
	struct ring ring = ring_open(4);
	struct tl_stats stats;
	long plain = sys(SYS_lseek, memory, code, SEEK_SET);

	CHECK_EQ(plain, code);
	ring_put(&ring, 0, SYS_getppid);
	ring_put(&ring, 1, SYS_lseek, memory, code, SEEK_SET);
	ring_put(&ring, 2, SYS_getpid);
	CHECK_EQ(ring_batch(&ring, 0, 3), 3);
	CHECK_DONE(&ring, 1, plain);
	CHECK_DONE(&ring, 2, getpid());
	CHECK_EQ(ring_batch(&ring, 1, 1), 1);	/* as the first of a batch, too */
	CHECK_DONE(&ring, 1, plain);
	stats = ring_stats(&ring);
	CHECK_EQ(stats.refused, 0);
	CHECK_EQ(stats.executed, 4);
	ring_close(&ring);
}

static void by_worker(void)
{
	struct ring ring = worker_ring_open(4);
	struct worker worker = { 0 };

	worker_start(&worker, &ring);
	for (long code = FIRST; code >= LAST; code--) {
		ring_put(&ring, 0, SYS_lseek, memory, code, SEEK_SET);
		ring_put(&ring, 1, SYS_getpid);
		ring_submit(&ring, 0);
		ring_submit(&ring, 1);
		CHECK_EQ(ring_notify(&ring, 2), 2);
		wait_done(&ring, 0);
		wait_done(&ring, 1);
		CHECK_DONE(&ring, 0, code);
		CHECK_DONE(&ring, 1, getpid());
	}
	CHECK_EQ(ring_stats(&ring).refused, 0);
	workers_end(&ring, &worker, 1);
}

int main(void)
{
	memory = MUST(open("/proc/self/mem", O_RDONLY));
	for (long code = FIRST; code >= LAST; code--)
		in_batch(code);
	by_worker();
	return 0;
}
