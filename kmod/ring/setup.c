// SPDX-License-Identifier: GPL-2.0-only
/*
 * Makes a ring of what a process asks for: checks the request, puts memory and queue together,
 * publishes the ring in its file, and maps it into the process. This file owns the checks, the
 * order, the mappings, and how a ring's counts are told. It owns neither the memory (ring.c) nor
 * the queue (queue.c).
 */
#include <linux/errno.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/seq_file.h>
#include <linux/string.h>

#include "compat/entry.h"
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
#define TL_COUNT(member, offset) stats->member = atomic64_read(&ring->counts.member);
#include <linux/trapless_fields.h>
	if (ring->queue)
		stats->executed = tlk_queue_executed(ring);
}

/* ---- Mappings ---- */

/* For debuggers, which can read and write memory that is marked like this in no other way. */
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

/* A mapping was split in two. A fork does not come here: a child gets no mapping. */
static void mapping_open(struct vm_area_struct *vma)
{
	atomic_inc(&tlk_ring_of(vma->vm_file)->mappings);
}

/*
 * A process that has unmapped the ring cannot use it any more. It may be unable to say so by
 * TL_IOC_EXIT, because another file may have the descriptor's number. So the last unmapping makes
 * the workers return, as TL_IOC_EXIT does.
 */
static void mapping_close(struct vm_area_struct *vma)
{
	struct tlk_ring *ring = tlk_ring_of(vma->vm_file);

	if (atomic_dec_and_test(&ring->mappings) && ring->queue)
		tlk_queue_shut(ring);
}

static const struct vm_operations_struct mapping_operations = {
	.open = mapping_open,
	.close = mapping_close,
	.access = mapping_access,
};

/*
 * Maps exactly the ring, shared, from its beginning. A child gets no copy: it could not use the
 * ring, and the parent's requests are not the child's.
 */
int tlk_setup_mmap(struct tlk_ring *ring, struct vm_area_struct *vma)
{
	const vm_flags_t wanted = VM_READ | VM_WRITE | VM_SHARED;
	int error;

	if (ring->mm != vma->vm_mm)
		return -EPERM;
	if (vma->vm_pgoff || vma_pages(vma) != ring->page_count)
		return -EINVAL;
	if ((vma->vm_flags & (wanted | VM_EXEC)) != wanted)
		return -EINVAL;
	tlk_vma_forbid_copy(vma);
	error = vm_map_pages(vma, ring->pages, ring->page_count);
	if (error)
		return error;
	vma->vm_ops = &mapping_operations;
	if (atomic_inc_return(&ring->mappings) == 1)
		WRITE_ONCE(ring->address, vma->vm_start);
	return 0;
}

/* ---- For operators ---- */

static const char *why_stopped(u32 why)
{
	switch (why) {
	case TL_STOPPED_NEVER:
		return "never";
	case TL_STOPPED_SIGNAL:
		return "signal";
	case TL_STOPPED_STEPS:
		return "steps";
	case TL_STOPPED_BUSY:
		return "busy";
	case TL_STOPPED_PAUSE:
		return "pause";
	case TLK_STOPPED_IDENTITY:
		return "identity";
	default:
		return "unknown";
	}
}

static void show_batches(struct tlk_ring *ring, struct seq_file *text)
{
	struct tlk_ring_counts *counts = &ring->counts;
	u64 stop = READ_ONCE(counts->stop);
	/* Completed ones are read first: they were submitted before. */
	s64 completed = atomic64_read(&counts->executed) + atomic64_read(&counts->refused) +
			atomic64_read(&counts->callless);

	seq_printf(text, "submitted:\t%lld\ncompleted:\t%lld\nthreads-inside:\t%d\n",
		   atomic64_read(&counts->submitted), completed, atomic_read(&counts->inside));
	seq_printf(text, "last-stop:\t%s", why_stopped((u32)stop));
	if (stop)
		seq_printf(text, " before request %u", (u32)(stop >> TLK_STOP_AT_SHIFT));
	seq_putc(text, '\n');
}

static void show_workers(struct tlk_ring *ring, struct seq_file *text)
{
	struct tlk_ring_counts *counts = &ring->counts;
	struct tlk_queue_state state = tlk_queue_look(ring->queue);
	s64 submitted = atomic64_read(&counts->submitted);

	seq_printf(text, "submitted:\t%lld\ncompleted:\t%lld\ndropped:\t%lld\n", submitted,
		   submitted - state.unfinished - atomic64_read(&counts->dropped),
		   atomic64_read(&counts->dropped));
	seq_printf(text, "workers-inside:\t%u\nworkers-asleep:\t%u\n", state.inside,
		   state.asleep);
	if (TLK_SLEEP_IS_SEEN)
		seq_printf(text, "workers-blocked:\t%u\n", state.blocked);
	seq_printf(text, "requesters-waiting:\t%u\nlast-stop:\t%s\n", state.waiting,
		   why_stopped((u32)READ_ONCE(counts->stop)));
}

/*
 * Nothing here is read from the ring's memory, which the process writes, and no lock is taken but
 * the queue's, under which nobody sleeps. So it also tells of a ring whose threads are stuck.
 */
void tlk_setup_show(struct tlk_ring *ring, struct seq_file *text)
{
	if (!ring) {
		seq_puts(text, "kind:\tnone\n");
		return;
	}
	seq_printf(text, "kind:\t%s%s\nentries:\t%u\ncrossings:\t%lld\n",
		   ring->queue ? "workers" : "batches", ring->completions ? ", completions" : "",
		   ring->mask + 1, atomic64_read(&ring->counts.crossings));
	if (ring->queue)
		show_workers(ring, text);
	else
		show_batches(ring, text);
}
