/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A thread that may not write to some memory, by its protection keys, has no worker write there:
 * its worker's keys are compared with its own.
 */
#include <sys/mman.h>

#include "ring.h"

#define PAGE 4096

static void set_keys(unsigned int keys)
{
	__asm__ volatile(".byte 0x0f, 0x01, 0xef" : : "a"(keys), "c"(0), "d"(0) : "memory");
}

static unsigned int get_keys(void)
{
	unsigned int keys, high;

	__asm__ volatile(".byte 0x0f, 0x01, 0xee" : "=a"(keys), "=d"(high) : "c"(0));
	return keys;
}

int main(void)
{
	struct worker worker = { 0 };
	long key = sys(SYS_pkey_alloc, 0, 0);
	unsigned int open;
	struct ring ring;
	char *page;

	if (key < 0)
		SKIP("no protection keys: %s", strerror((int)-key));
	page = MUST(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	CHECK_EQ(sys(SYS_pkey_mprotect, page, PAGE, PROT_READ | PROT_WRITE, key), 0);
	ring = worker_ring_open(4);
	worker_start(&worker, &ring);
	wait_asleep(worker.tid);
	open = get_keys();
	set_keys(open | 2u << (2 * key));	/* no writing */
	CHECK_EQ(sys(SYS_getcwd, page, PAGE), -EFAULT);
	ring_queue(&ring, 0, SYS_getcwd, page, PAGE);
	CHECK_EQ(ring_notify(&ring, 1), -EPERM);
	CHECK_EQ(ring_state(&ring, 0), TL_SUBMITTED);
	set_keys(open);
	CHECK_EQ(ring_wait(&ring, 1, 0), 0);
	CHECK_EQ(ring_state(&ring, 0), TL_DONE);
	CHECK(ring_result(&ring, 0) > 0);
	workers_end(&ring, &worker, 1);
	return 0;
}
