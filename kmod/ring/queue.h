/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The queue of a worker ring, between the threads that submit requests and the workers that make
 * them. This header owns the order of requests, who sleeps and who is woken. It makes no call.
 *
 * User space writes slot numbers to submit[] and says how many are new. Head and tail are kept
 * here, where user space cannot rewrite them. Taking a request and finishing it are a few atomic
 * operations; a lock is taken only around sleep and by requesters.
 *
 * Waking is a chain. A notify wakes one sleeper at most. A worker that takes a request and leaves
 * others behind wakes the next worker before it makes its call, which may be slow. So a requester
 * makes one wake-up at most, and while requests are waiting and a worker sleeps, another worker is
 * on its way to the queue.
 */
#ifndef TLK_QUEUE_H
#define TLK_QUEUE_H

#include <linux/atomic.h>
#include <linux/nospec.h>
#include <linux/types.h>
#include <linux/wait.h>
#include <linux/trapless.h>

#include "ring/identity.h"
#include "ring/ring.h"

struct tlk_queue {
	/*
	 * submit[] entries since set-up, modulo 2^32: head of them are taken, tail notified.
	 * Workers move head by compare-and-exchange; tail is written under idle.lock. A worker
	 * that sees the new tail sees what user space wrote before it notified: the release in
	 * notify_locked() pairs with the acquire in tlk_queue_take().
	 */
	atomic_t head;
	u32 tail;
	/*
	 * Notified requests that are not complete. A worker takes one off after it has stored
	 * TL_DONE and then looks for waiters; a waiter queues itself and then looks here. The full
	 * barriers of atomic_dec_return() and prepare_to_wait() pair: one sees the other.
	 */
	atomic_t unfinished;

	/* Written under idle.lock. Read without it as hints: to act on one, the lock is taken. */
	u32 redo_count;			/* bits set in redo */
	bool redo_was_last;		/* taken: now it is the turn of submit[], if it has any */
	u32 spinning;			/* workers that look at the queue all the time */
	u32 waiting;			/* requesters in TL_ENTER_WAIT */
	u32 wait_left;			/* the largest number that any of them waits for */
	bool shut;

	/* Under idle.lock. */
	u32 inside;			/* workers in tlk_worker_serve() */
	u64 notified;			/* requests since set-up */
	pid_t requester;		/* made all that is unfinished; 0: not one thread alone */
	struct tlk_identity identity;	/* the requester's; that of all workers inside */
	DECLARE_BITMAP(redo, TL_ENTRIES_MAX);	/* slots whose worker left for a signal */
	u32 redo_next;			/* where to look for the next of them */

	wait_queue_head_t idle;		/* workers asleep, exclusive */
	wait_queue_head_t done;		/* requesters in TL_ENTER_WAIT */
	u64 spin_ns;			/* constant */
};

struct tlk_queue *tlk_queue_create(const struct tl_setup *setup);
void tlk_queue_destroy(struct tlk_queue *queue);

/* For requesters: TL_ENTER_NOTIFY, TL_ENTER_WAIT and TL_IOC_EXIT. */
long tlk_queue_notify(struct tlk_ring *ring, unsigned long argument);
long tlk_queue_wait(struct tlk_ring *ring, unsigned long argument);
void tlk_queue_shut(struct tlk_ring *ring);

/* How many requests' system calls were made. */
u64 tlk_queue_executed(struct tlk_ring *ring);

/* For workers, which enter, rest while there is nothing to do, and leave. */
int tlk_queue_enter(struct tlk_ring *ring);
void tlk_queue_rest(struct tlk_ring *ring);
void tlk_queue_leave(struct tlk_ring *ring);

/* The uncommon cases of what follows. */
void tlk_queue_wake(struct tlk_ring *ring);
int tlk_queue_take_redo(struct tlk_ring *ring);
void tlk_queue_drop(struct tlk_ring *ring);
void tlk_queue_redo(struct tlk_ring *ring, unsigned int slot);

static __always_inline bool tlk_queue_has_work(const struct tlk_queue *queue)
{
	return (u32)atomic_read(&queue->head) != READ_ONCE(queue->tail) ||
	       READ_ONCE(queue->redo_count);
}

/*
 * Makes the slot the caller's. The slot's state says who owns the request: a library that takes
 * over after TL_IOC_EXIT claims the rest in the same way, so each request has one owner.
 */
static __always_inline bool tlk_queue_claim(struct tlk_ring *ring, u32 slot)
{
	u8 *state = &ring->requests[slot].state;

	return cmpxchg(state, TL_SUBMITTED, TL_RUNNING) == TL_SUBMITTED;
}

/*
 * Takes the next slot to serve, which is TL_RUNNING from then on. Returns -1 if the queue is empty,
 * or if its next slot was dropped because it is out of range or not submitted (it runs already). A
 * call drops one slot at most: a requester may add garbage faster than it is dropped, and the
 * worker has to look for signals and scheduling. The slot number is read before it is taken,
 * because user space may reuse the entry from then on.
 */
static __always_inline int tlk_queue_take(struct tlk_ring *ring)
{
	struct tlk_queue *queue = ring->queue;
	int head = atomic_read(&queue->head);
	u32 slot;

	if (unlikely(READ_ONCE(queue->redo_count))) {
		if (!READ_ONCE(queue->redo_was_last) || (u32)head == READ_ONCE(queue->tail))
			return tlk_queue_take_redo(ring);
		WRITE_ONCE(queue->redo_was_last, false);
	}
	/* Pairs with the release in notify_locked(). */
	while ((u32)head != smp_load_acquire(&queue->tail)) {
		slot = READ_ONCE(ring->submit[head & ring->mask]);
		if (!atomic_try_cmpxchg(&queue->head, &head, head + 1))
			continue;
		if (likely(slot <= ring->mask)) {
			slot = array_index_nospec(slot, ring->mask + 1);
			if (likely(tlk_queue_claim(ring, slot)))
				return slot;
		}
		tlk_queue_drop(ring);
		break;
	}
	return -1;
}

/*
 * Wakes the next worker of the chain. Without the lock the look at the sleepers is a hint: a worker
 * that goes to sleep right now looks for work once more under the lock.
 */
static __always_inline void tlk_queue_wake_next(struct tlk_ring *ring)
{
	if (unlikely(waitqueue_active(&ring->queue->idle)) && tlk_queue_has_work(ring->queue))
		tlk_queue_wake(ring);
}

/* Counts off a request of the queue that is complete; its state says so already. */
static __always_inline void tlk_queue_finish(struct tlk_queue *queue)
{
	u32 left = atomic_dec_return(&queue->unfinished);

	if (unlikely(READ_ONCE(queue->waiting)) && left <= READ_ONCE(queue->wait_left))
		wake_up(&queue->done);
}

#endif /* TLK_QUEUE_H */
