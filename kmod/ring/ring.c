// SPDX-License-Identifier: GPL-2.0-only
/*
 * Allocates, maps and releases the memory of a ring. This file owns the pages. It owns no request
 * and no queue.
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

#include "compat/account.h"
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

	BUILD_BUG_ON(TL_RING_BYTES(1) % PAGE_SIZE);
	BUILD_BUG_ON(TL_RING_COMPLETIONS_BYTES(1) % PAGE_SIZE);
	if (completions)
		bytes += TL_RING_COMPLETIONS_BYTES(entries);
	pages = bytes >> PAGE_SHIFT;

	ring = kzalloc(sizeof(*ring), GFP_KERNEL_ACCOUNT);
	if (!ring)
		return NULL;
	if (!tlk_account_charge(&ring->account, pages))
		goto err_ring;
	if (pages_alloc(ring, pages))
		goto err_account;
	ring->mask = entries - 1;
	ring->submit = (void *)ring->requests + TL_RING_SUBMIT_OFFSET(entries);
	if (completions)
		ring->completions = (void *)ring->requests + TL_RING_COMPLETIONS_OFFSET(entries);
	ring->mm = current->mm;
	mmgrab(ring->mm);
	return ring;

err_account:
	tlk_account_uncharge(&ring->account);
err_ring:
	kfree(ring);
	return NULL;
}

void tlk_ring_destroy(struct tlk_ring *ring)
{
	pages_free(ring);
	tlk_account_uncharge(&ring->account);
	mmdrop(ring->mm);
	kfree(ring);
}

/* For debuggers, which reach no other way into memory that is marked as this is. */
static int mapping_access(struct vm_area_struct *vma, unsigned long address, void *buffer,
			  int length, int write)
{
	const struct tlk_ring *ring = tlk_ring_of(vma->vm_file);
	size_t offset = address - vma->vm_start + (vma->vm_pgoff << PAGE_SHIFT);

	length = min_t(unsigned long, length, vma->vm_end - address);
	if (write)
		memcpy((void *)ring->requests + offset, buffer, length);
	else
		memcpy(buffer, (void *)ring->requests + offset, length);
	return length;
}

static const struct vm_operations_struct mapping_operations = {
	.access = mapping_access,
};

/*
 * Maps exactly the ring, shared, from its beginning. A child gets no copy: it could not use the
 * ring, and the parent's requests are not the child's.
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
	vma->vm_ops = &mapping_operations;
	return vm_map_pages(vma, ring->pages, ring->page_count);
}
