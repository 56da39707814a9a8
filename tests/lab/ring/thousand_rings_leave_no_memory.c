// SPDX-License-Identifier: GPL-2.0-only
/*
 * A thousand rings are made, used and dropped in every way, closed first or unmapped first, with
 * and without workers, by exit and by kill: the kernel holds as much as before.
 */
#include "memory.h"
#include "ring.h"

#define RINGS 1000
#define RING_KB 12	/* TL_RING_BYTES(128): what each leaked ring would cost */

static void batch_ring(bool close_first)
{
	struct ring ring = ring_open(128);

	CHECK_EQ(batch_call(&ring, SYS_getpid), getpid());
	if (close_first)
		CHECK_EQ(sys(SYS_close, ring.fd), 0);
	CHECK_EQ(sys(SYS_munmap, ring.requests, TL_RING_BYTES(128)), 0);
	if (!close_first)
		CHECK_EQ(sys(SYS_close, ring.fd), 0);
}

static void worker_ring(bool serve)
{
	struct ring ring = worker_ring_open(128);
	struct worker worker = { 0 };

	ring_queue(&ring, 0, SYS_getpid);
	CHECK_EQ(ring_notify(&ring, 1), 1);
	if (serve) {
		worker_start(&worker, &ring);
		CHECK_EQ(ring_wait(&ring, 0, 0), 0);
		workers_end(&ring, &worker, 1);
	}
	ring_close(&ring);
}

static void dies(void)
{
	batch_ring(true);
	ring_open(128);
	worker_ring_open(128);
	raise(SIGKILL);
}

static void failed_setups(void)
{
	int fd = device_open();

	CHECK_EQ(device_setup(fd, 3, 0, 0), -EINVAL);
	CHECK_EQ(device_setup(fd, 128, 0, 0), 0);
	CHECK_EQ(device_setup(fd, 128, TL_SETUP_WORKERS, 0), -EEXIST);
	CHECK_EQ(sys(SYS_close, fd), 0);
}

static void make_rings(int n)
{
	for (int i = 0; i < n; i++) {
		switch (i % 5) {
		case 0:
			batch_ring(i % 2);
			break;
		case 1:
			worker_ring(i % 20 == 1);
			break;
		case 2:
			failed_setups();
			break;
		case 3:
			CHECK_KILLED(child_run(dies), SIGKILL);
			break;
		default:
			CHECK_EQ(sys(SYS_close, device_open()), 0);
		}
	}
}

#define OBJECTS_MAX (RINGS / 5 / 2)	/* half of what a way leaks that leaks one */
#define ROUNDS 3

/*
 * What other parts of the kernel keep meanwhile differs from round to round; a leak is in each.
 * The best round counts.
 */
int main(void)
{
	struct memory before, after;

	make_rings(RINGS / 5);
	after = memory_settled();
	for (int round = 0; round < ROUNDS; round++) {
		before = after;
		make_rings(RINGS);
		after = memory_settled();
		fprintf(stderr,
			"more than before: %ld objects, %ld address spaces, %ld + %ld KB\n",
			after.objects - before.objects, after.mms - before.mms,
			after.vmalloc_kb - before.vmalloc_kb,
			after.unexplained_kb - before.unexplained_kb);
		if (after.objects - before.objects <= OBJECTS_MAX)
			break;
	}
	if (access("/sys/kernel/debug/kmemleak", F_OK) == 0)
		SKIP("a KASAN kernel keeps what is freed; kmemleak looks for leaks there");
	CHECK_WITHIN(after.objects - before.objects, -RINGS * 10, OBJECTS_MAX);
	CHECK_WITHIN(after.mms - before.mms, -RINGS, RINGS / 10);
	CHECK_WITHIN(after.vmalloc_kb - before.vmalloc_kb, -RINGS * RING_KB, RINGS * RING_KB / 20);
	CHECK_WITHIN(after.unexplained_kb - before.unexplained_kb, -RINGS * RING_KB,
		     RINGS * RING_KB / 2);
	return 0;
}
