// SPDX-License-Identifier: GPL-2.0-only
/*
 * Allocates and releases the memory of a ring. This file owns the pages. It owns no request, no
 * queue and no mapping.
 *
 * A ring's pages are charged to the memory cgroup of the process and to the locked memory of its
 * user, who could otherwise fill the memory with rings that no process is seen to use.
 */
#include <linux/gfp.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "compat/memlock.h"
#include "compat/entry.h"
#include "limits.h"
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

struct tlk_ring *tlk_ring_create(unsigned int entries, bool completions)
{
	unsigned int bytes = TL_RING_BYTES(entries);
	struct tlk_ring *ring;
	unsigned int pages;

	if (completions)
		bytes += TL_RING_COMPLETIONS_BYTES(entries);
	pages = DIV_ROUND_UP(bytes, PAGE_SIZE);

	ring = kzalloc(sizeof(*ring), GFP_KERNEL_ACCOUNT);
	if (!ring)
		return NULL;
	if (!tlk_memlock_charge(&ring->account, pages))
		goto err_ring;
	if (pages_alloc(ring, pages))
		goto err_account;
	ring->mask = entries - 1;
	ring->address = TLK_RING_NOT_MAPPED;
	ring->submit = (void *)ring->requests + TL_RING_SUBMIT_OFFSET(entries);
	if (completions)
		ring->completions = (void *)ring->requests + TL_RING_COMPLETIONS_OFFSET(entries);
	ring->mm = current->mm;
	mmgrab(ring->mm);
	return ring;

err_account:
	tlk_memlock_uncharge(&ring->account);
err_ring:
	kfree(ring);
	return NULL;
}

void tlk_ring_destroy(struct tlk_ring *ring)
{
	pages_free(ring);
	tlk_memlock_uncharge(&ring->account);
	mmdrop(ring->mm);
	kfree(ring);
}
