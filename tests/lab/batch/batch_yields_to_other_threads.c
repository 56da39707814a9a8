// SPDX-License-Identifier: GPL-2.0-only
/* A long batch does not keep its CPU from others: a thread bound to the same one runs meanwhile. */
#include "ring.h"

static unsigned long turns;
static int stop;

static void *other(void *arg)
{
	pin_to_cpu(0);
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
		__atomic_fetch_add(&turns, 1, __ATOMIC_RELAXED);
	return arg;
}

int main(void)
{
	static char bytes[1 << 16];
	struct ring ring = ring_open(TL_ENTRIES_MAX);
	int fd = MUST(open("/dev/zero", O_RDONLY));
	unsigned long before, during;
	pthread_t thread;

	CHECK_EQ(pthread_create(&thread, NULL, other, NULL), 0);
	pin_to_cpu(0);
	for (unsigned int slot = 0; slot < TL_ENTRIES_MAX; slot++)
		ring_put(&ring, slot, SYS_read, fd, bytes, sizeof(bytes));
	while (!__atomic_load_n(&turns, __ATOMIC_RELAXED))
		sched_yield();
	before = __atomic_load_n(&turns, __ATOMIC_RELAXED);
	CHECK_EQ(ring_batch(&ring, 0, TL_ENTRIES_MAX), TL_ENTRIES_MAX);
	during = __atomic_load_n(&turns, __ATOMIC_RELAXED) - before;
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK(during > 0);	/* the machine may take most of a turn for others */
	return 0;
}
