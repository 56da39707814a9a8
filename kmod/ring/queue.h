/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The queue of a worker ring, between the threads that submit requests and the workers that make
 * them. This header owns the order of requests, which threads sleep and which are woken. It makes
 * no call.
 *
 * User space writes slot numbers to submit[] and says how many are new. Head and tail are kept
 * here, where user space cannot rewrite them. Taking a request and finishing it are a few atomic
 * operations; a lock is taken only around sleep and by requesters.
 *
 * Workers are woken as the kernel's own workqueues do it: a burst of short calls is the business of
 * one worker, and another one is woken only when it is of use.
 *
 *  - A notify wakes a worker if none is awake, or if a CPU is idle that a sleeping one may use.
 *  - A worker that is about to sleep inside a call wakes the next one if no other is awake and
 *    requests are left.
 *  - A worker that leaves requests behind wakes the next one if they would keep it busy for long
 *    and a CPU is idle.
 *
 * Why no wake-up is lost: `awake` counts the workers that look at the queue again before they
 * sleep. Requests that wait while a worker rests need one of them. Whoever adds a request stores
 * `tail` and then, behind a full barrier, reads `awake`. Whoever goes to sleep takes itself off
 * `awake` and then, behind a full barrier, reads `tail`. So one of the two sees the other: either
 * the first finds nobody awake and wakes a worker, or the last one that goes to sleep finds the
 * request and has a worker woken. A worker that is woken from its rest counts as awake from its
 * wake-up on, so a second notify need not wake another one before the first runs. A worker that
 * leaves does the same as one that goes to sleep. Where sleep inside calls cannot be seen
 * (TLK_SLEEP_IS_SEEN), every notify wakes a worker, and so does every worker that leaves requests
 * behind.
 */
#ifndef TLK_QUEUE_H
#define TLK_QUEUE_H

#include <linux/atomic.h>
#include <linux/cpumask.h>
#include <linux/irq_work.h>
#include <linux/list.h>
#include <linux/nospec.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/wait.h>
#include <linux/trapless.h>
#include <asm/local.h>

#include "compat/sleep.h"
#include "ring/identity.h"
#include "ring/request.h"
#include "ring/ring.h"

struct poll_table_struct;

/* A worker as the queue sees it. It lives on the worker's stack while the worker is inside. */
struct tlk_queue_worker {
	struct tlk_queue *queue;
	struct task_struct *task;
	struct tlk_sleep sleep;
	struct list_head inside;	/* in queue->inside; under queue->lock */
	struct list_head idle;	/* in queue->idle while it may be woken; under queue->lock */
	/*
	 * Calls that it has made. Only the worker writes it, by one instruction, and before it
	 * stores TL_DONE with release: whoever has seen that and then takes the lock finds the call
	 * counted.
	 */
	local_t executed;
	/* The rest is the worker's own. */
	bool resting;		/* it sleeps for want of requests, and not inside a call */
	bool begun;		/* the program that it has taken or gives back is half made */
	u64 took_ns;		/* when it took a request and left some behind, or 0 */
	u64 sought_ns;		/* when it last looked for an idle CPU */
};

struct tlk_queue {
	/*
	 * submit[] entries since set-up, modulo 2^32: head of them are taken, tail notified.
	 * Workers move head by compare-and-exchange; tail is written under lock. A worker
	 * that sees the new tail sees what user space wrote before it notified: the xchg() of
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
	/* Workers that look at the queue before they sleep: this file's first comment says why. */
	atomic_t awake;
	u32 call_ns;			/* how long a call took of late; a hint; 0: not known */

	/* Written under lock. Read without it as hints: to act on one, the lock is taken. */
	u32 redo_count;			/* bits set in redo */
	bool redo_was_last;		/* taken: now it is the turn of submit[], if it has any */
	u32 spinning;			/* workers that look at the queue all the time */
	u32 waiting;			/* requesters in TL_ENTER_WAIT */
	u32 wait_left;			/* the largest number that any of them waits for */
	bool shut;

	/* Under lock. */
	struct list_head inside;	/* workers in tlk_worker_serve() */
	struct pid *requester;		/* made all that is unfinished; NULL: more than one */
	struct tlk_identity identity;	/* the requester's; that of all workers inside */
	/* Slots whose worker left for a signal. A half-made program among them stays TL_RUNNING. */
	DECLARE_BITMAP(redo, TL_ENTRIES_MAX);
	u32 redo_next;			/* where to look for the next of them */

	/*
	 * The handler of `kick` takes the lock, too, so interrupts are off where it is held. Nobody
	 * takes it in a switch of threads.
	 */
	spinlock_t lock;
	struct list_head idle;		/* at rest; the last one, with warm caches, first */
	struct irq_work kick;		/* wakes a worker when one sleeps inside a call */
	wait_queue_head_t done;		/* requesters in TL_ENTER_WAIT */
	u64 spin_ns;			/* constant */
	/*
	 * With a queue of completions: how many there were since set-up, modulo 2^32, and who waits
	 * for them by poll(2).
	 */
	atomic_t completed;
	wait_queue_head_t pollers;
	struct tlk_ring *ring;		/* constant: the ring that owns the queue */
};

/* May sleep, as what it undoes may. */
struct tlk_queue *tlk_queue_create(struct tlk_ring *ring, const struct tl_setup *setup);
void tlk_queue_destroy(struct tlk_queue *queue);

/* For requesters: TL_ENTER_NOTIFY, TL_ENTER_WAIT, TL_IOC_WAKE, poll(2) and TL_IOC_EXIT. */
long tlk_queue_notify(struct tlk_ring *ring, unsigned long argument);
long tlk_queue_wait(struct tlk_ring *ring, struct file *file, unsigned long argument);
void tlk_queue_wake_pollers(struct tlk_queue *queue);
__poll_t tlk_queue_poll(struct tlk_ring *ring, struct file *file, struct poll_table_struct *table);
void tlk_queue_shut(struct tlk_ring *ring);

/* How many calls were made: by the workers that are inside and by those that have left. */
u64 tlk_queue_executed(struct tlk_ring *ring);

/* Which threads are inside at one moment, for operators. */
struct tlk_queue_state {
	u32 unfinished;
	u32 inside;		/* workers */
	u32 asleep;		/* of these, for want of requests */
	u32 blocked;		/* of these, inside a call, if TLK_SLEEP_IS_SEEN */
	u32 waiting;		/* requesters in TL_ENTER_WAIT */
};

struct tlk_queue_state tlk_queue_look(struct tlk_queue *queue);

/* For workers, which enter, rest while there is nothing to do, and leave. */
int tlk_queue_enter(struct tlk_queue *queue, struct tlk_queue_worker *worker);
void tlk_wake_rest(struct tlk_queue_worker *worker);
void tlk_queue_leave(struct tlk_queue_worker *worker);

/* How long threads spin: wake.c for requests, queue.c for results. */
#define TLK_QUEUE_LOOKS 64	/* looks for each pause and reading of the clock, which cost more */
bool tlk_queue_spin_on(u64 end);

/* wake.c, for queue.c. */
void tlk_wake_if_none_is_awake_locked(struct tlk_queue *queue);
void tlk_wake_for_new_locked(struct tlk_queue *queue);
void tlk_wake_all_locked(struct tlk_queue *queue);
void tlk_wake_kick(struct irq_work *work);
void tlk_wake_worker_went(struct tlk_sleep *sleep);
void tlk_wake_worker_came(struct tlk_sleep *sleep);

/* The uncommon cases of what follows. */
void tlk_wake_seek_help(struct tlk_queue_worker *worker);
int tlk_queue_take_redo(struct tlk_ring *ring, struct tlk_queue_worker *worker);
void tlk_queue_drop(struct tlk_ring *ring, u32 slot);
void tlk_queue_report(struct tlk_ring *ring, u32 slot);
void tlk_queue_signal(struct tlk_ring *ring);
void tlk_queue_redo(struct tlk_queue_worker *worker, unsigned int slot);

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
 * or if its next slot was dropped because it is out of range or not submitted (it runs already, or
 * was canceled). A call drops one slot at most: a requester may add garbage faster than it is
 * dropped, and the worker has to look for signals and scheduling. The slot number is read before it
 * is taken, because user space may reuse the entry from then on.
 */
static __always_inline int tlk_queue_take(struct tlk_ring *ring, struct tlk_queue_worker *worker)
{
	struct tlk_queue *queue = ring->queue;
	int head = atomic_read(&queue->head);
	u32 slot;

	if (unlikely(READ_ONCE(queue->redo_count))) {
		if (!READ_ONCE(queue->redo_was_last) || (u32)head == READ_ONCE(queue->tail))
			return tlk_queue_take_redo(ring, worker);
		WRITE_ONCE(queue->redo_was_last, false);
	}
	/* Pairs with the xchg() of notify_locked(). */
	while ((u32)head != smp_load_acquire(&queue->tail)) {
		slot = READ_ONCE(ring->submit[head & ring->mask]);
		if (!atomic_try_cmpxchg(&queue->head, &head, head + 1))
			continue;
		if (likely(slot <= ring->mask)) {
			slot = array_index_nospec(slot, ring->mask + 1);
			if (likely(tlk_queue_claim(ring, slot)))
				return slot;
		}
		tlk_queue_drop(ring, slot);
		break;
	}
	return -1;
}

/*
 * Asks whether another worker should make what this one leaves behind. Without the lock the look at
 * those at rest is a hint: a worker that goes to rest right now looks for work once more.
 */
static __always_inline void tlk_queue_took(struct tlk_queue_worker *worker)
{
	if (unlikely(!list_empty(&worker->queue->idle)) && tlk_queue_has_work(worker->queue))
		tlk_wake_seek_help(worker);
	else
		worker->took_ns = 0;
}

/* Counts off a request of the queue that is complete; its state says so already. */
static __always_inline void tlk_queue_finish(struct tlk_queue *queue)
{
	u32 left = atomic_dec_return(&queue->unfinished);

	if (unlikely(READ_ONCE(queue->waiting)) && left <= READ_ONCE(queue->wait_left))
		wake_up(&queue->done);
}

/*
 * Completes a request. Its state is stored first, and the requester may use the slot again as soon
 * as it is reported. Whoever sees that it was counted off finds it in the queue of completions.
 */
static __always_inline void tlk_queue_complete(struct tlk_ring *ring, u32 slot, long result)
{
	tlk_request_complete(&ring->requests[slot], result);
	if (!ring->completions) {
		tlk_queue_finish(ring->queue);
		return;
	}
	tlk_queue_report(ring, slot);
	tlk_queue_finish(ring->queue);
	if (READ_ONCE(ring->completions->armed))
		tlk_queue_signal(ring);
}

#endif /* TLK_QUEUE_H */
