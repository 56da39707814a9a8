// SPDX-License-Identifier: GPL-2.0-only
/*
 * The mapping is moved, cut, protected, locked and dropped while another thread runs batches: the
 * module's view of the ring is its own, no page but the ring's is ever touched.
 */
#include "ring.h"

#define ENTRIES 256u
#define ROUNDS 20

static struct ring ring;
static int stop;

static void *batcher(void *arg)
{
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
		CHECK_EQ(ring_batch(&ring, 0, ENTRIES), ENTRIES);
	return arg;
}

static void bend(void)
{
	const size_t whole = TL_RING_BYTES(ENTRIES);
	char *map = device_map(ring.fd, ENTRIES), *moved;
	struct iovec { void *base; size_t length; } iovec = { map, whole };

	CHECK(!is_error(map));
	CHECK_EQ(sys(SYS_mremap, map, whole, 2 * whole, MREMAP_MAYMOVE), -EFAULT);
	moved = (char *)sys(SYS_mremap, map, whole, whole, MREMAP_MAYMOVE | MREMAP_FIXED,
			    map + (1UL << 30));
	if (!is_error(moved))
		map = moved;
	CHECK_EQ(sys(SYS_mprotect, map, 4096, PROT_READ), 0);
	CHECK_EQ(sys(SYS_mprotect, map, 4096, PROT_NONE), 0);
	CHECK_EQ(sys(SYS_mprotect, map, 4096, PROT_READ | PROT_WRITE), 0);
	sys(SYS_madvise, map, whole, MADV_DONTNEED);
	sys(SYS_madvise, map, whole, MADV_DOFORK);
	sys(SYS_madvise, map, whole, MADV_HUGEPAGE);
	sys(SYS_madvise, map, whole, MADV_REMOVE);
	sys(SYS_mlock, map, whole);
	sys(SYS_msync, map, whole, MS_SYNC);
	sys(SYS_process_vm_readv, getpid(), &iovec, 1, &iovec, 1, 0);
	CHECK_EQ(sys(SYS_munmap, map + 4096, 4096), 0);
	CHECK_EQ(sys(SYS_mmap, map, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
		     -1, 0), map);
	CHECK_EQ(sys(SYS_munmap, map, whole), 0);
}

int main(void)
{
	pthread_t thread;

	ring = ring_open(ENTRIES);
	for (unsigned int slot = 0; slot < ENTRIES; slot++)
		ring_put(&ring, slot, SYS_getpid);
	CHECK_EQ(pthread_create(&thread, NULL, batcher, NULL), 0);
	wait_done(&ring, ENTRIES - 1);	/* on a busy machine all rounds could end before a batch */
	for (int round = 0; round < ROUNDS; round++)
		bend();
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_DONE(&ring, ENTRIES - 1, getpid());
	return 0;
}
