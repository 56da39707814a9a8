// SPDX-License-Identifier: GPL-2.0-only
/*
 * Makes a ring of what a process asks for: checks the request, puts memory and queue together, and
 * publishes the ring in its file. This file owns the checks and the order. It owns neither the
 * memory (ring.c) nor the queue (queue.c).
 */
#include <linux/errno.h>
#include <linux/log2.h>

#include "ring/queue.h"
#include "ring/ring.h"
#include "ring/setup.h"

static int setup_check(const struct tl_setup *setup)
{
	if (setup->flags & ~TL_SETUP_FLAGS)
		return -EINVAL;
	if (setup->flags == TL_SETUP_COMPLETIONS)
		return -EINVAL;
	if (!is_power_of_2(setup->entries) || setup->entries > TL_ENTRIES_MAX)
		return -EINVAL;
	if (setup->spin_us > TL_SPIN_US_MAX)
		return -EINVAL;
	if (setup->reserved[0] || setup->reserved[1])
		return -EINVAL;
	return 0;
}

int tlk_setup(struct file *file, const struct tl_setup *setup)
{
	struct tlk_ring *ring;
	int error;

	error = setup_check(setup);
	if (error)
		return error;
	ring = tlk_ring_create(setup->entries, setup->flags & TL_SETUP_COMPLETIONS);
	if (!ring)
		return -ENOMEM;
	if (setup->flags & TL_SETUP_WORKERS) {
		ring->queue = tlk_queue_create(ring, setup);
		if (!ring->queue) {
			tlk_ring_destroy(ring);
			return -ENOMEM;
		}
	}
	/* Publishes the ring; pairs with the acquire in tlk_ring_of(). The first of two wins. */
	if (cmpxchg_release(&file->private_data, NULL, (void *)ring)) {
		tlk_setup_undo(ring);
		return -EEXIST;
	}
	return 0;
}

void tlk_setup_undo(struct tlk_ring *ring)
{
	if (ring->queue)
		tlk_queue_destroy(ring->queue);
	tlk_ring_destroy(ring);
}

void tlk_setup_stats(struct tlk_ring *ring, struct tl_stats *stats)
{
	stats->crossings = atomic64_read(&ring->counts.crossings);
	stats->executed = ring->queue ? tlk_queue_executed(ring) :
					  atomic64_read(&ring->counts.executed);
	stats->refused = atomic64_read(&ring->counts.refused);
	stats->interrupted = atomic64_read(&ring->counts.interrupted);
	stats->bypassed = atomic64_read(&ring->counts.bypassed);
	stats->sleeps = atomic64_read(&ring->counts.sleeps);
	stats->wakeups = atomic64_read(&ring->counts.wakeups);
	stats->dropped = atomic64_read(&ring->counts.dropped);
}
