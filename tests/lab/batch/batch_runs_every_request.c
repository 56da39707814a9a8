// SPDX-License-Identifier: GPL-2.0-only
/* A batch makes every call it is given: results, states and the module's own counts agree. */
#include "ring.h"

#define CALLS 128u

int main(void)
{
	struct ring ring = ring_open(CALLS);
	struct tl_stats stats;

	for (unsigned int slot = 0; slot < CALLS; slot++)
		ring_put(&ring, slot, slot % 2 ? SYS_getppid : SYS_getpid);
	CHECK_EQ(ring_batch(&ring, 0, CALLS), CALLS);
	for (unsigned int slot = 0; slot < CALLS; slot++)
		CHECK_DONE(&ring, slot, slot % 2 ? getppid() : getpid());

	stats = ring_stats(&ring);
	CHECK_EQ(stats.executed, CALLS);
	CHECK_EQ(stats.crossings, 1);
	CHECK_EQ(stats.refused, 0);
	ring_close(&ring);
	return 0;
}
