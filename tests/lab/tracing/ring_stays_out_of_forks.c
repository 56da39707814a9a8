/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * madvise() cannot make a ring one of the memories that a child inherits. A debugger reads the ring
 * though it is marked for that, and writes to it as its process does.
 */
#include "ring.h"

static struct ring ring;

static void touch(void)
{
	signal(SIGSEGV, SIG_DFL);
	__atomic_store_n(&ring.requests[0].nr, SYS_getpid, __ATOMIC_RELAXED);
}

int main(void)
{
	const size_t bytes = TL_RING_BYTES(256);
	struct tl_request copy;
	int memory;

	ring = ring_open(256);
	ring_put(&ring, 0, SYS_getppid);
	ring_put(&ring, 255, SYS_getsid, 4711);
	CHECK_EQ(sys(SYS_madvise, ring.requests, bytes, MADV_DOFORK), -EINVAL);
	CHECK_KILLED(child_run(touch), SIGSEGV);
	memory = MUST(open("/proc/self/mem", O_RDWR));
	CHECK_EQ(pread(memory, &copy, sizeof(copy), (off_t)(uintptr_t)&ring.requests[255]),
		 sizeof(copy));
	CHECK(!memcmp(&copy, &ring.requests[255], sizeof(copy)));
	copy.nr = SYS_getpid;
	CHECK_EQ(pwrite(memory, &copy, sizeof(copy), (off_t)(uintptr_t)&ring.requests[255]),
		 sizeof(copy));
	CHECK_EQ(ring.requests[255].nr, SYS_getpid);
	CHECK_EQ(ring_batch(&ring, 255, 2), 2);
	CHECK_DONE(&ring, 255, getpid());
	CHECK_DONE(&ring, 0, getppid());
	return 0;
}
