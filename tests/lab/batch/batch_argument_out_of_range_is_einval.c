// SPDX-License-Identifier: GPL-2.0-only
/* Entering with a slot, count or whence out of range is -EINVAL and executes nothing. */
#include <limits.h>

#include "ring.h"

int main(void)
{
	static const long bad_batches[] = {
		TL_BATCH(0, 9), TL_BATCH(0, 32767), TL_BATCH(7, 9), TL_BATCH(8, 1),
		TL_BATCH(65535, 1), TL_BATCH(65535, 32767), -1, -65536, LONG_MIN, LONG_MAX,
		1L << 32 | TL_BATCH(0, 1), 1L << 62 | TL_BATCH(0, 1),
	};
	static const int bad_whences[] = { -1, 3, 4, 5, 1000, INT_MAX, INT_MIN };
	struct ring ring = ring_open(8);

	for (unsigned int slot = 0; slot < 8; slot++)
		ring_put(&ring, slot, SYS_getpid);
	for (unsigned int i = 0; i < sizeof(bad_batches) / sizeof(*bad_batches); i++) {
		long result = enter(ring.fd, bad_batches[i], TL_ENTER_BATCH);

		if (result != -EINVAL)
			FAIL("batch argument 0x%lx gives %ld, expected -EINVAL", bad_batches[i],
			     result);
	}
	for (unsigned int i = 0; i < sizeof(bad_whences) / sizeof(*bad_whences); i++) {
		long result = enter(ring.fd, TL_BATCH(0, 1), bad_whences[i]);

		if (result != -EINVAL)
			FAIL("whence %d gives %ld, expected -EINVAL", bad_whences[i], result);
	}
	for (unsigned int slot = 0; slot < 8; slot++)
		CHECK_EQ(ring_state(&ring, slot), TL_SUBMITTED);
	CHECK_EQ(ring_stats(&ring).executed, 0);
	CHECK_EQ(ring_batch(&ring, 0, 8), 8);
	return 0;
}
