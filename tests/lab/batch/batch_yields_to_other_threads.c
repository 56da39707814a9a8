// SPDX-License-Identifier: GPL-2.0-only
/*
 * A long batch does not keep its CPU from others: a thread bound to the same one runs meanwhile.
 * The batch itself notes the other's turns, by its first and its last call: what the other does
 * before and after does not count.
 */
#include <sys/mman.h>

#include "ring.h"

#define LAST (TL_ENTRIES_MAX - 1)
#define TURNS_MIN 1000

static unsigned long turns;
static int stop;

static void *other(void *arg)
{
	pin_to_cpu(0);
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
		__atomic_fetch_add(&turns, 1, __ATOMIC_RELAXED);
	return arg;
}

static unsigned long turns_within(struct ring *ring, int notes)
{
	unsigned long noted[2];

	CHECK_EQ(ring_batch(ring, 0, TL_ENTRIES_MAX), TL_ENTRIES_MAX);
	CHECK_EQ(pread(notes, noted, sizeof(noted), 0), (long)sizeof(noted));
	return noted[1] - noted[0];
}

int main(void)
{
	static char bytes[1 << 16];
	struct ring ring = ring_open(TL_ENTRIES_MAX);
	int fd = MUST(open("/dev/zero", O_RDONLY)), notes = MUST(memfd_create("notes", 0));
	unsigned long during = 0;
	pthread_t thread;

	CHECK_EQ(pthread_create(&thread, NULL, other, NULL), 0);
	pin_to_cpu(0);
	for (unsigned int slot = 1; slot < LAST; slot++)
		ring_put(&ring, slot, SYS_read, fd, bytes, sizeof(bytes));
	ring_put(&ring, 0, SYS_pwrite64, notes, &turns, sizeof(turns), 0);
	ring_put(&ring, LAST, SYS_pwrite64, notes, &turns, sizeof(turns), sizeof(turns));
	while (!__atomic_load_n(&turns, __ATOMIC_RELAXED))
		sched_yield();
	/* A busy machine may take most of the other's time: then in more than one batch. */
	WAIT_UNTIL((during += turns_within(&ring, notes)) > TURNS_MIN, "%lu turns after %d ms",
		   during, WAIT_MS);
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	return 0;
}
