// SPDX-License-Identifier: GPL-2.0-only
/*
 * The queue of a worker ring. This file owns the requesters' entries, and the cases that are not on
 * a worker's usual path. queue.h owns that path, and wake.c which of the workers sleep.
 */
#include <linux/bitmap.h>
#include <linux/file.h>
#include <linux/hrtimer.h>
#include <linux/ktime.h>
#include <linux/lockdep.h>
#include <linux/pid.h>
#include <linux/poll.h>
#include <linux/sched/signal.h>
#include <linux/sched/stat.h>
#include <linux/slab.h>

#include "compat/entry.h"
#include "compat/task.h"
#include "ring/queue.h"

static_assert(TL_ENTRIES_MAX <= U16_MAX, "an entry's argument holds two counts of 16 bits");

struct tlk_queue *tlk_queue_create(struct tlk_ring *ring, const struct tl_setup *setup)
{
	struct tlk_queue *queue = kzalloc(sizeof(*queue), GFP_KERNEL_ACCOUNT);

	if (!queue)
		return NULL;
	tlk_sleep_prepare();
	spin_lock_init(&queue->lock);
	INIT_LIST_HEAD(&queue->inside);
	INIT_LIST_HEAD(&queue->idle);
	init_irq_work(&queue->kick, tlk_wake_kick);
	init_waitqueue_head(&queue->done);
	init_waitqueue_head(&queue->pollers);
	queue->spin_ns = (u64)setup->spin_us * NSEC_PER_USEC;
	queue->ring = ring;
	tlk_identity_take(&queue->identity);
	return queue;
}

/* Nobody is inside any more, but a worker's last sleep may have queued a kick. */
void tlk_queue_destroy(struct tlk_queue *queue)
{
	irq_work_sync(&queue->kick);
	tlk_identity_put(&queue->identity);
	put_pid(queue->requester);
	kfree(queue);
}

/* Has the thread that made all requests which are not complete the current one's identity now? */
static bool requester_has_followed(const struct tlk_queue *queue)
{
	struct task_struct *requester;
	bool has;

	rcu_read_lock();
	requester = pid_task(queue->requester, PIDTYPE_PID);
	has = requester && tlk_identity_has_followed(&queue->identity, requester);
	rcu_read_unlock();
	return has;
}

/*
 * May the queue take over the current thread's identity? Requests that wait need the thread that
 * made them: it comes itself, or has this identity by now. So do workers inside: a thread that
 * confines all threads of its process (TSYNC of seccomp and Landlock) changes them as they sleep. A
 * worker that has changed compares itself with the queue before it takes its next request.
 */
static bool may_take_over_locked(struct tlk_queue *queue) __must_hold(&queue->lock)
{
	struct tlk_queue_worker *worker;

	lockdep_assert_held(&queue->lock);
	list_for_each_entry(worker, &queue->inside, inside)
		if (!tlk_identity_has_followed(&queue->identity, worker->task))
			return false;
	return !atomic_read(&queue->unfinished) || queue->requester == task_pid(current) ||
	       requester_has_followed(queue);
}

/*
 * May the current thread use the queue? The queue has one identity: that of all workers inside and
 * of all requests that wait. The process never changes: one that shares the memory alone is
 * another, and a child of vfork(2) whose parent waits for it would wait here for its parent.
 */
static int admit_locked(struct tlk_queue *queue) __must_hold(&queue->lock)
{
	lockdep_assert_held(&queue->lock);
	if (queue->shut)
		return -ESHUTDOWN;
	if (tlk_identity_is_current(&queue->identity))
		return 0;
	if (queue->identity.process != current->signal || !may_take_over_locked(queue))
		return -EPERM;
	tlk_identity_put(&queue->identity);
	tlk_identity_take(&queue->identity);
	return 0;
}

/*
 * Another thread that can run on this CPU may be the one that is waited for, so a thread spins only
 * while it has the CPU for itself.
 */
bool tlk_queue_spin_on(u64 end)
{
	cpu_relax();
	return single_task_running() && !need_resched() && !signal_pending(current) &&
	       ktime_get_ns() < end;
}

/* ---- Workers ---- */

int tlk_queue_enter(struct tlk_queue *queue, struct tlk_queue_worker *worker)
{
	int error;

	*worker = (struct tlk_queue_worker){
		.queue = queue,
		.task = current,
		.sleep = { .went = tlk_wake_worker_went, .came = tlk_wake_worker_came },
	};
	INIT_LIST_HEAD(&worker->idle);
	spin_lock_irq(&queue->lock);
	error = admit_locked(queue);
	if (!error) {
		list_add(&worker->inside, &queue->inside);
		atomic_inc(&queue->awake);
	}
	spin_unlock_irq(&queue->lock);
	if (!error)
		tlk_sleep_watch(&worker->sleep);
	return error;
}

/*
 * The wake-up that this worker got may have been for a request that it leaves behind. What it has
 * counted stays with the ring.
 */
void tlk_queue_leave(struct tlk_queue_worker *worker)
{
	struct tlk_queue *queue = worker->queue;

	tlk_sleep_unwatch(&worker->sleep);
	spin_lock_irq(&queue->lock);
	list_del(&worker->inside);
	atomic64_add(local_read(&worker->executed), &queue->ring->counts.executed);
	atomic_dec(&queue->awake);
	tlk_wake_if_none_is_awake_locked(queue);
	spin_unlock_irq(&queue->lock);
}

/* A half-made program that was given back runs still: nobody else may have changed its state. */
static bool claim_again(struct tlk_ring *ring, u32 slot, struct tlk_queue_worker *worker)
{
	worker->begun = READ_ONCE(ring->requests[slot].state) == TL_RUNNING;
	return worker->begun || tlk_queue_claim(ring, slot);
}

/*
 * Takes a request that was given back. One that is interrupted each time must not come before all
 * others for ever: they take turns with each other, and with the entries of submit[].
 */
int tlk_queue_take_redo(struct tlk_ring *ring, struct tlk_queue_worker *worker)
{
	struct tlk_queue *queue = ring->queue;
	int entries = ring->mask + 1;
	int slot = -1;

	spin_lock_irq(&queue->lock);
	if (queue->redo_count && !queue->shut) {
		slot = find_next_bit(queue->redo, entries, queue->redo_next);
		if (slot == entries)
			slot = find_first_bit(queue->redo, entries);
		__clear_bit(slot, queue->redo);
		WRITE_ONCE(queue->redo_count, queue->redo_count - 1);
		WRITE_ONCE(queue->redo_was_last, true);
		queue->redo_next = slot + 1;
	}
	spin_unlock_irq(&queue->lock);
	if (slot >= 0 && !claim_again(ring, slot, worker)) {
		tlk_queue_drop(ring, slot);
		return -1;
	}
	return slot;
}

/*
 * Counts off a notified request that will never be made. If it was canceled, its slot was not to be
 * used again before this moment: a worker would have taken the new request for the old one.
 */
void tlk_queue_drop(struct tlk_ring *ring, u32 slot)
{
	/* Counted first: whoever sees TL_FREE finds it counted. */
	atomic64_inc(&ring->counts.dropped);
	if (slot <= ring->mask)
		cmpxchg(&ring->requests[array_index_nospec(slot, ring->mask + 1)].state,
			TL_CANCELED, TL_FREE);
	tlk_queue_finish(ring->queue);
	/* A requester that had no slot polls until there is one. */
	if (ring->completions && READ_ONCE(ring->completions->armed))
		tlk_queue_signal(ring);
}

/* Puts a slot into the queue of completions. */
void tlk_queue_report(struct tlk_ring *ring, u32 slot)
{
	u32 *slots = (u32 *)(ring->completions + 1);
	u32 place = atomic_inc_return(&ring->queue->completed) - 1;

	/* Pairs with the acquire of the requester. */
	smp_store_release(&slots[place & ring->mask], slot + 1);
}

/*
 * Wakes once for all that completes until the requester has looked. The full barrier of
 * tlk_queue_finish() stands between the queue of completions and `armed`, that of the requester
 * between `armed` and the queue: one sees the other.
 */
void tlk_queue_signal(struct tlk_ring *ring)
{
	if (xchg(&ring->completions->armed, 0))
		tlk_queue_wake_pollers(ring->queue);
}

void tlk_queue_wake_pollers(struct tlk_queue *queue)
{
	wake_up_poll(&queue->pollers, EPOLLIN | EPOLLRDNORM);
}

/*
 * The descriptor is readable while nobody has armed it. A waiter is queued before `armed` is read,
 * and whoever clears `armed` wakes the queue afterwards.
 */
__poll_t tlk_queue_poll(struct tlk_ring *ring, struct file *file, struct poll_table_struct *table)
{
	poll_wait(file, &ring->queue->pollers, table);
	/* Pairs with the full barrier of the xchg() before wake_up(), here and in user space. */
	smp_mb();
	return READ_ONCE(ring->completions->armed) ? 0 : EPOLLIN | EPOLLRDNORM;
}

/*
 * Gives back a request that was taken and not made, to another worker or to this one when it comes
 * again. A program that is half made goes on as TL_RUNNING while there is a queue, so that nobody
 * cancels it. The state is stored first, because whoever finds the bit may claim the slot. Only a
 * requester that breaks the rules has one slot running twice; then the second is dropped.
 */
void tlk_queue_redo(struct tlk_queue_worker *worker, unsigned int slot)
{
	struct tlk_queue *queue = worker->queue;
	struct tlk_ring *ring = queue->ring;
	bool twice;

	spin_lock_irq(&queue->lock);
	if (!worker->begun || queue->shut)
		smp_store_release(&ring->requests[slot].state, TL_SUBMITTED);
	worker->begun = false;
	twice = __test_and_set_bit(slot, queue->redo);
	if (!twice)
		WRITE_ONCE(queue->redo_count, queue->redo_count + 1);
	spin_unlock_irq(&queue->lock);
	if (twice)
		tlk_queue_drop(ring, slot);
}

/* ---- Requesters ---- */

/* The requester is known by its struct pid: a new thread may get the same number. */
static void note_requester_locked(struct tlk_queue *queue) __must_hold(&queue->lock)
{
	struct pid *requester = task_pid(current);

	lockdep_assert_held(&queue->lock);
	if (queue->requester == requester)
		return;
	if (atomic_read(&queue->unfinished))
		requester = NULL;
	put_pid(queue->requester);
	queue->requester = get_pid(requester);
}

static int notify_locked(struct tlk_ring *ring, u32 count) __must_hold(&ring->queue->lock)
{
	struct tlk_queue *queue = ring->queue;
	int error;

	lockdep_assert_held(&queue->lock);
	error = admit_locked(queue);
	if (error)
		return error;
	if (count > ring->mask + 1 - (queue->tail - (u32)atomic_read(&queue->head)))
		return -EAGAIN;
	if (count)
		note_requester_locked(queue);
	atomic_add(count, &queue->unfinished);
	atomic64_add(count, &ring->counts.submitted);
	/*
	 * The full barriers on both sides of xchg() pair with the acquire in tlk_queue_take(), so
	 * that a worker sees the requests, and with that of tlk_wake_worker_went(): `awake` is read
	 * behind it. smp_store_mb() would order nothing before the store, except on x86.
	 */
	xchg(&queue->tail, queue->tail + count);
	tlk_wake_for_new_locked(queue);
	return 0;
}

static int notify(struct tlk_ring *ring, u32 count)
{
	int error;

	/* The thread is traced or audited, and a tracer would not see calls that workers make. */
	if (unlikely(tlk_entry_work() & ~TLK_ENTRY_SECCOMP)) {
		atomic64_inc(&ring->counts.bypassed);
		return -EBUSY;
	}
	atomic64_inc(&ring->counts.crossings);
	spin_lock_irq(&ring->queue->lock);
	error = notify_locked(ring, count);
	spin_unlock_irq(&ring->queue->lock);
	return error;
}

long tlk_queue_notify(struct tlk_ring *ring, unsigned long argument)
{
	int error;

	if (argument > ring->mask + 1)
		return -EINVAL;
	error = notify(ring, argument);
	return error ? error : TL_ANSWER + (long)argument;
}

static bool done_enough(const struct tlk_queue *queue, u32 left)
{
	return (u32)atomic_read(&queue->unfinished) <= left;
}

static void spin_for_results(struct tlk_queue *queue, u32 left)
{
	u64 end = ktime_get_ns() + queue->spin_ns;
	unsigned int look;

	while (!READ_ONCE(queue->shut) && tlk_queue_spin_on(end))
		for (look = 0; look < TLK_QUEUE_LOOKS; look++)
			if (done_enough(queue, left))
				return;
}

/* Several threads may wait at once: then each wake-up is for all, and each looks for itself. */
static int sleep_for_results(struct tlk_queue *queue, u32 left, ktime_t *end)
{
	DEFINE_WAIT(wait);
	int error = 0;

	spin_lock_irq(&queue->lock);
	WRITE_ONCE(queue->wait_left, queue->waiting ? max(queue->wait_left, left) : left);
	WRITE_ONCE(queue->waiting, queue->waiting + 1);
	spin_unlock_irq(&queue->lock);
	for (;;) {
		/* Its full barrier pairs with that of tlk_queue_finish(). */
		prepare_to_wait(&queue->done, &wait, TASK_INTERRUPTIBLE);
		if (done_enough(queue, left))
			break;
		if (READ_ONCE(queue->shut))
			error = -ESHUTDOWN;
		else if (tlk_must_return())
			error = -EINTR;
		if (error)
			break;
		if (signal_pending(current)) {
			__set_current_state(TASK_RUNNING);
			tlk_task_work_serve();
			continue;
		}
		/* It returns 0 when the time is over. Without a time it sleeps for ever. */
		if (!schedule_hrtimeout(end, HRTIMER_MODE_ABS))
			error = done_enough(queue, left) ? 0 : -ETIME;
		if (error)
			break;
	}
	finish_wait(&queue->done, &wait);
	spin_lock_irq(&queue->lock);
	WRITE_ONCE(queue->waiting, queue->waiting - 1);
	spin_unlock_irq(&queue->lock);
	return error;
}

/*
 * Task work that is done during the sleep may close the file, as io_uring's requests do. The system
 * call holds no reference to the file if no other thread shares the table of files.
 */
long tlk_queue_wait(struct tlk_ring *ring, struct file *file, unsigned long argument)
{
	struct tlk_queue *queue = ring->queue;
	u32 count = argument & 0xffff;
	u32 left = (u32)argument >> 16;
	u32 limit_us = argument >> 32;
	ktime_t end;
	long result;
	int error;

	if (limit_us > TL_WAIT_US_MAX || count > ring->mask + 1)
		return -EINVAL;
	if (limit_us)
		end = ktime_add_us(ktime_get(), limit_us);
	error = notify(ring, count);
	if (error)
		return error;
	if (queue->spin_ns && !done_enough(queue, left))
		spin_for_results(queue, left);
	if (done_enough(queue, left))
		return TL_ANSWER + atomic_read(&queue->unfinished);
	get_file(file);
	error = sleep_for_results(queue, left, limit_us ? &end : NULL);
	result = error ? error : TL_ANSWER + atomic_read(&queue->unfinished);
	fput(file);
	return result;
}

/*
 * Requests that are not taken yet never will be: the queue is emptied at once for all workers, and
 * half-made programs are the requester's again. A requester that waits by poll(2) is woken as
 * by a completion. The lock stands between `shut` and `armed`, and between the requester's `armed`
 * and its look: one sees the other.
 */
void tlk_queue_shut(struct tlk_ring *ring)
{
	struct tlk_queue *queue = ring->queue;
	unsigned int slot;

	spin_lock_irq(&queue->lock);
	WRITE_ONCE(queue->shut, true);
	atomic_set(&queue->head, queue->tail);
	for_each_set_bit(slot, queue->redo, ring->mask + 1)
		cmpxchg(&ring->requests[slot].state, TL_RUNNING, TL_SUBMITTED);
	bitmap_zero(queue->redo, TL_ENTRIES_MAX);
	WRITE_ONCE(queue->redo_count, 0);
	tlk_wake_all_locked(queue);
	spin_unlock_irq(&queue->lock);
	wake_up_all(&queue->done);
	if (ring->completions)
		tlk_queue_signal(ring);
}

u64 tlk_queue_executed(struct tlk_ring *ring)
{
	struct tlk_queue *queue = ring->queue;
	struct tlk_queue_worker *worker;
	u64 executed;

	spin_lock_irq(&queue->lock);
	executed = atomic64_read(&ring->counts.executed);
	list_for_each_entry(worker, &queue->inside, inside)
		executed += local_read(&worker->executed);
	spin_unlock_irq(&queue->lock);
	return executed;
}

/* Whether a worker sleeps inside a call, its own switch of threads writes without the lock. */
struct tlk_queue_state tlk_queue_look(struct tlk_queue *queue)
{
	struct tlk_queue_state state = {};
	struct tlk_queue_worker *worker;

	spin_lock_irq(&queue->lock);
	state.unfinished = atomic_read(&queue->unfinished);
	state.waiting = queue->waiting;
	list_for_each_entry(worker, &queue->inside, inside) {
		state.inside++;
		if (!list_empty(&worker->idle))
			state.asleep++;
		else if (data_race(worker->sleep.asleep))
			state.blocked++;
	}
	spin_unlock_irq(&queue->lock);
	return state;
}
