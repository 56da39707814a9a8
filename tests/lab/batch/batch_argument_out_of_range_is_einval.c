// SPDX-License-Identifier: GPL-2.0-only
/*
 * Entering with an address, count or kind out of range is -EINVAL and executes nothing. So is an
 * lseek that means no entry, and the address of another ring.
 */
#include <limits.h>

#include "ring.h"

#define SLOTS 8u

static void check_refused(const struct ring *ring, uint64_t address, uint64_t n, int kind)
{
	long result = enter_at(ring->fd, (void *)address, (long)n, kind);

	if (result != -EINVAL)
		FAIL("%#lx + %#lx of kind %d gives %ld, expected -EINVAL", address, n, kind,
		     result);
}

int main(void)
{
	static const int bad_kinds[] = { -1, 1, 2, 4, 5, 1000, INT_MAX, INT_MIN };
	struct ring ring = ring_open(SLOTS), other = ring_open(SLOTS);
	const uint64_t base = (uintptr_t)ring.requests, end = base + SLOTS * 64;
	const struct {
		uint64_t address, n;
	} bad_batches[] = {
		{ base, 9 }, { base, 32767 }, { base + 7 * 64, 9 }, { base, -1ul },
		{ base, 1ul << 32 | 1 }, { base, 1ul << 63 | 1 }, { base, 1ul << 16 },
		{ end, 1 }, { base + 65535 * 64, 1 }, { base - 64, 1 }, { base - 1, 1 }, { 0, 1 },
		{ base + (1ul << 32), 1 }, { base | 1ul << 63, 1 }, { -1ul, 1 }, { -64ul, 1 },
		{ (uintptr_t)other.requests, 1 },
	};

	for (unsigned int slot = 0; slot < SLOTS; slot++) {
		ring_put(&ring, slot, SYS_getpid);
		ring_put(&other, slot, SYS_getpid);
	}
	for (unsigned int i = 0; i < sizeof(bad_batches) / sizeof(*bad_batches); i++)
		check_refused(&ring, bad_batches[i].address, bad_batches[i].n, TL_ENTER_BATCH);
	for (unsigned int i = 0; i < sizeof(bad_kinds) / sizeof(*bad_kinds); i++)
		check_refused(&ring, base, 1, bad_kinds[i]);
	for (int whence = 0; whence < 5; whence++)
		CHECK_EQ(sys(SYS_lseek, ring.fd, 1L << 16, whence), -EINVAL);
	check_refused(&ring, base + 64, 1, TL_ENTER_PROGRAM);
	check_refused(&ring, (uintptr_t)other.requests, 1, TL_ENTER_PROGRAM);
	for (unsigned int slot = 0; slot < SLOTS; slot++) {
		CHECK_EQ(ring_state(&ring, slot), TL_SUBMITTED);
		CHECK_EQ(ring_state(&other, slot), TL_SUBMITTED);
	}
	CHECK_EQ(ring_stats(&ring).executed, 0);
	CHECK_EQ(ring_stats(&other).executed, 0);
	CHECK_EQ(ring_batch(&ring, 0, SLOTS), SLOTS);
	return 0;
}
