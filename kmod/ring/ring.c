// SPDX-License-Identifier: GPL-2.0-only
/*
 * The memory of a ring: set-up, mapping, counts, release. Owns no execution of requests.
 *
 * A ring's pages are charged to the memory cgroup of the process, and their number is bounded by
 * TL_ENTRIES_MAX a ring and the limit of open files a process.
 */
#include <linux/gfp.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "compat/entry.h"
#include "limits.h"
#include "ring/queue.h"
#include "ring/ring.h"

static void pages_free(struct tlk_ring *ring)
{
	unsigned int i;

	vunmap(ring->requests);
	for (i = 0; i < ring->page_count; i++)
		__free_page(ring->pages[i]);
	kfree(ring->pages);
}

static int pages_alloc(struct tlk_ring *ring, unsigned int count)
{
	ring->pages = kcalloc(count, sizeof(*ring->pages), GFP_KERNEL_ACCOUNT);
	if (!ring->pages)
		return -ENOMEM;
	while (ring->page_count < count) {
		struct page *page = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO);

		if (!page)
			goto err_free;
		ring->pages[ring->page_count++] = page;
	}
	ring->requests = vmap(ring->pages, count, VM_MAP, PAGE_KERNEL);
	if (!ring->requests)
		goto err_free;
	return 0;

err_free:
	pages_free(ring);
	return -ENOMEM;
}

static int setup_check(const struct tl_setup *setup)
{
	if (setup->flags & ~TL_SETUP_FLAGS)
		return -EINVAL;
	if (!is_power_of_2(setup->entries) || setup->entries > TL_ENTRIES_MAX)
		return -EINVAL;
	if (setup->spin_us > TL_SPIN_US_MAX)
		return -EINVAL;
	if (setup->reserved[0] || setup->reserved[1])
		return -EINVAL;
	return 0;
}

static struct tlk_ring *ring_create(const struct tl_setup *setup)
{
	struct tlk_ring *ring;

	BUILD_BUG_ON(TL_RING_BYTES(1) % PAGE_SIZE);
	BUILD_BUG_ON(TLK_RING_PAGES_MAX * PAGE_SIZE != TL_RING_BYTES(TL_ENTRIES_MAX));

	ring = kzalloc(sizeof(*ring), GFP_KERNEL_ACCOUNT);
	if (!ring)
		return NULL;
	ring->mask = setup->entries - 1;
	if (setup->flags & TL_SETUP_WORKERS) {
		ring->queue = tlk_queue_create(setup);
		if (!ring->queue)
			goto err_ring;
	}
	if (pages_alloc(ring, TL_RING_BYTES(setup->entries) >> PAGE_SHIFT))
		goto err_queue;
	ring->submit = (void *)ring->requests + TL_RING_SUBMIT_OFFSET(setup->entries);
	ring->mm = current->mm;
	mmgrab(ring->mm);
	return ring;

err_queue:
	if (ring->queue)
		tlk_queue_destroy(ring->queue);
err_ring:
	kfree(ring);
	return NULL;
}

void tlk_ring_free(struct tlk_ring *ring)
{
	mmdrop(ring->mm);
	pages_free(ring);
	if (ring->queue)
		tlk_queue_destroy(ring->queue);
	kfree(ring);
}

int tlk_ring_setup(struct file *file, const struct tl_setup *setup)
{
	struct tlk_ring *ring;
	int error;

	error = setup_check(setup);
	if (error)
		return error;
	ring = ring_create(setup);
	if (!ring)
		return -ENOMEM;
	/* Publishes the ring; pairs with the acquire in tlk_ring_of(). The first of two wins. */
	if (cmpxchg_release(&file->private_data, NULL, (void *)ring)) {
		tlk_ring_free(ring);
		return -EEXIST;
	}
	return 0;
}

/*
 * Exactly the ring, shared, from its beginning. A child gets no copy (VM_DONTCOPY): it could not
 * use the ring, and the parent's requests are not its business.
 */
int tlk_ring_mmap(struct tlk_ring *ring, struct vm_area_struct *vma)
{
	const vm_flags_t wanted = VM_READ | VM_WRITE | VM_SHARED;

	if (ring->mm != vma->vm_mm)
		return -EPERM;
	if (vma->vm_pgoff || vma_pages(vma) != ring->page_count)
		return -EINVAL;
	if ((vma->vm_flags & (wanted | VM_EXEC)) != wanted)
		return -EINVAL;
	tlk_vma_forbid_copy(vma);
	return vm_map_pages(vma, ring->pages, ring->page_count);
}

void tlk_ring_stats(struct tlk_ring *ring, struct tl_stats *stats)
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
