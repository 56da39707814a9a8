/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A ring: the memory that one process shares with the module, what kind it is, and its counts. This
 * header owns the structure. setup.c makes a ring of what a process asks for; batch.c and worker.c
 * execute what is in it.
 */
#ifndef TLK_RING_H
#define TLK_RING_H

#include <linux/atomic.h>
#include <linux/fs.h>
#include <linux/mm_types.h>
#include <linux/trapless.h>

#include "compat/memlock.h"

struct tlk_queue;

/* The address of a ring that was never mapped: no process has memory there. */
#define TLK_RING_NOT_MAPPED (1ul << 63)

/*
 * Written by the threads of one process at once. Each count is exact: they are the proof that every
 * call was really made.
 */
struct tlk_ring_counts {
	/* What TL_IOC_STATS tells; on a worker ring, `executed` by workers that have left. */
#define TL_COUNT(member, offset) atomic64_t member;
#include <linux/trapless_fields.h>
	/* For operators, see tlk_setup_show(). */
	atomic64_t submitted;		/* requests of batches and notifies; steps that were made */
	atomic64_t callless;		/* steps of programs that were no call */
	atomic_t inside;		/* threads that make a batch or a program */
	u64 stop;			/* the last early end: why, and above STOP_AT_SHIFT where */
};

#define TLK_STOP_AT_SHIFT 32
#define TLK_STOPPED_IDENTITY 16u	/* why a worker stopped, beside enum tl_stopped */

/* Several threads may stop at once; the last one to write is reported. */
static inline void tlk_counts_note_stop(struct tlk_ring_counts *counts, u32 why, u32 at)
{
	WRITE_ONCE(counts->stop, (u64)at << TLK_STOP_AT_SHIFT | why);
}

/*
 * Belongs to one open file and lives as long: whoever executes requests holds the file. All but the
 * counts, the requests and the mappings is constant once file->private_data points here.
 */
struct tlk_ring {
	struct tl_request *requests;	/* shared with user space: read once, trust nothing */
	const u32 *submit;		/* shared: the requester's slot numbers (worker rings) */
	/* Shared: the queue of completions, or NULL; u32 of slots follow. */
	struct tl_completions *completions;
	u32 mask;			/* entries - 1 */
	/* Where the process has mapped the ring first: an entry names the ring by it. */
	unsigned long address;
	struct mm_struct *mm;		/* pinned by mmgrab(): its address is not reused */
	struct tlk_ring_counts counts;
	struct tlk_queue *queue;	/* of a worker ring, else NULL */
	atomic_t mappings;
	struct page **pages;
	unsigned int page_count;
	struct tlk_memlock account;	/* of the pages */
};

/* A ring of the current process without a queue; NULL if memory or the user's limit lacks room. */
struct tlk_ring *tlk_ring_create(unsigned int entries, bool completions);
void tlk_ring_destroy(struct tlk_ring *ring);

/* Has the process mapped this ring there? */
static inline bool tlk_ring_is_at(const struct tlk_ring *ring, unsigned long address)
{
	return READ_ONCE(ring->address) == address;
}

/* Shared: the state of a program, on a ring of batches. */
static inline struct tl_program *tlk_ring_program(const struct tlk_ring *ring)
{
	return (void *)&ring->requests[ring->mask + 1];
}

/* NULL until TL_IOC_SETUP; pairs with the release in tlk_setup(). */
static __always_inline struct tlk_ring *tlk_ring_of(const struct file *file)
{
	return smp_load_acquire(&file->private_data);
}

#endif /* TLK_RING_H */
