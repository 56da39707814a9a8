// SPDX-License-Identifier: GPL-2.0-only
/*
 * Workers and those who notify and wait for them. Owns the queue of a worker ring, who sleeps and
 * who is woken; how one call is made is request.h's, on whose behalf identity.h's.
 *
 * The queue is the kernel's: user space writes slot numbers to submit[] and says how many are
 * new; head, tail and which slots are being executed are kept here, where nobody can rewrite
 * them.
 *
 * Waking is a chain. A notify wakes one sleeper at most; a worker that takes a request and leaves
 * others behind wakes the next before it makes its call, which may be slow. So a requester pays
 * for one wake-up at most, and while requests are waiting and a worker sleeps, another worker is
 * on its way to the queue.
 */
#include <linux/bitmap.h>
#include <linux/ktime.h>
#include <linux/log2.h>
#include <linux/nospec.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/wait.h>

#include "identity.h"
#include "request.h"
#include "ring.h"
#include "worker.h"

/*
 * Everything but spin_ns is written under idle.lock. head, tail, redo_count, unfinished and shut
 * are also read without it by spinners, which take the lock before they act.
 */
struct tlk_workers {
	wait_queue_head_t idle;		/* workers asleep, exclusive; its lock is the queue's */
	wait_queue_head_t done;		/* requesters in TL_DOOR_WAIT */
	u64 spin_ns;
	u32 head;			/* submit[] entries taken since set-up, modulo 2^32 */
	u32 tail;			/* ... notified */
	u32 unfinished;			/* notified requests that are not complete */
	u32 redo_count;			/* bits set in redo */
	u32 inside;			/* workers in tlk_worker_serve() */
	u32 spinning;			/* ... that look at the queue all the time */
	u32 wait_left;			/* the most that any waiter would be content with */
	u32 waiting;			/* requesters in TL_DOOR_WAIT */
	bool shut;
	struct tlk_identity identity;	/* the requester's; that of all workers inside */
	DECLARE_BITMAP(busy, TL_ENTRIES_MAX);	/* slots taken and not complete */
	DECLARE_BITMAP(redo, TL_ENTRIES_MAX);	/* ... whose worker went home with a signal */
};

/* A worker's stay, and the request that it is making. */
struct worker {
	struct tlk_stay stay;
	struct tlk_ring *ring;
	unsigned int slot;
};

static_assert(TL_ENTRIES_MAX <= U16_MAX, "a slot and a count share 32 bits of a door's argument");

struct tlk_workers *tlk_workers_create(const struct tl_setup *setup)
{
	struct tlk_workers *workers = kzalloc(sizeof(*workers), GFP_KERNEL_ACCOUNT);

	if (!workers)
		return NULL;
	init_waitqueue_head(&workers->idle);
	init_waitqueue_head(&workers->done);
	workers->spin_ns = (u64)setup->spin_us * NSEC_PER_USEC;
	tlk_identity_take(&workers->identity);
	return workers;
}

void tlk_workers_destroy(struct tlk_workers *workers)
{
	tlk_identity_put(&workers->identity);
	kfree(workers);
}

/* ---- The queue, under idle.lock unless said otherwise ---- */

/* Also a hint without the lock. */
static bool work_waits(const struct tlk_workers *workers)
{
	return READ_ONCE(workers->head) != READ_ONCE(workers->tail) ||
	       READ_ONCE(workers->redo_count);
}

static void wake_worker(struct tlk_ring *ring)
{
	struct tlk_workers *workers = ring->workers;

	if (!work_waits(workers) || workers->spinning || !waitqueue_active(&workers->idle))
		return;
	atomic64_inc(&ring->counts.wakeups);
	wake_up_locked(&workers->idle);
}

static void one_less_unfinished(struct tlk_workers *workers)
{
	WRITE_ONCE(workers->unfinished, workers->unfinished - 1);
	if (workers->waiting && workers->unfinished <= workers->wait_left)
		wake_up(&workers->done);
}

/* Next slot to serve, marked busy, or -1. */
static int take_slot(struct tlk_ring *ring)
{
	struct tlk_workers *workers = ring->workers;
	u32 slot;

	if (workers->redo_count) {
		slot = find_first_bit(workers->redo, ring->mask + 1);
		__clear_bit(slot, workers->redo);
		WRITE_ONCE(workers->redo_count, workers->redo_count - 1);
		return slot;
	}
	while (workers->head != workers->tail) {
		slot = READ_ONCE(ring->submit[workers->head & ring->mask]);
		WRITE_ONCE(workers->head, workers->head + 1);
		if (slot <= ring->mask) {
			slot = array_index_nospec(slot, ring->mask + 1);
			if (!__test_and_set_bit(slot, workers->busy))
				return slot;
		}
		atomic64_inc(&ring->counts.dropped);
		one_less_unfinished(workers);
	}
	return -1;
}

/* The requester may use the slot again as soon as it sees TL_DONE: all else comes before. */
static void finish_slot(struct tlk_ring *ring, unsigned int slot, long result)
{
	__clear_bit(slot, ring->workers->busy);
	tlk_request_complete(&ring->requests[slot], result);
	one_less_unfinished(ring->workers);
}

/* For another worker, or for this one when it comes back. */
static void redo_slot(struct tlk_ring *ring, unsigned int slot)
{
	struct tlk_workers *workers = ring->workers;

	smp_store_release(&ring->requests[slot].state, TL_SUBMITTED);
	__set_bit(slot, workers->redo);
	WRITE_ONCE(workers->redo_count, workers->redo_count + 1);
}

/* ---- A worker's life ---- */

/* Watches the queue for at most spin_ns, without the lock. */
static void spin(struct tlk_workers *workers)
{
	u64 end = ktime_get_ns() + workers->spin_ns;

	while (!work_waits(workers) && !READ_ONCE(workers->shut)) {
		if (signal_pending(current) || need_resched() || ktime_get_ns() >= end)
			break;
		cpu_relax();
	}
}

/* Under idle.lock, which is given up meanwhile. Returns when there may be something to do. */
static void rest(struct tlk_ring *ring)
	__must_hold(&ring->workers->idle.lock)
{
	struct tlk_workers *workers = ring->workers;

	/* On one CPU nobody could notify while we spin. */
	if (workers->spin_ns && num_online_cpus() > 1) {
		workers->spinning++;
		spin_unlock(&workers->idle.lock);
		spin(workers);
		spin_lock(&workers->idle.lock);
		workers->spinning--;
		if (work_waits(workers))
			return;
	}
	atomic64_inc(&ring->counts.sleeps);
	/* A signal is the caller's to see. */
	(void)wait_event_interruptible_exclusive_locked(workers->idle,
							work_waits(workers) || workers->shut);
}

/* 0, or why this worker must go home now. */
static int must_leave(struct tlk_ring *ring)
{
	if (ring->workers->shut)
		return -ESHUTDOWN;
	if (signal_pending(current))
		return -EINTR;
	if (current->ptrace || (tlk_entry_work() & ~TLK_ENTRY_SECCOMP))
		return -EBUSY;
	/* Another thread may have given this one a filter (SECCOMP_FILTER_FLAG_TSYNC). */
	if (!tlk_identity_is_current(&ring->workers->identity))
		return -EPERM;
	return 0;
}

/* Makes the request in worker->slot, without the lock. False: it is to be made again. */
static bool make_request(struct worker *worker, long *result)
{
	struct tl_request *request = &worker->ring->requests[worker->slot];
	struct tlk_stay *stay = &worker->stay;
	unsigned int refused = stay->refused;

	stay->ending = TLK_DONE;
	WRITE_ONCE(request->state, TL_RUNNING);
	tlk_request_copy(request, current_pt_regs());
	if (tlk_work_pending())
		*result = tlk_request_make_slow(stay, false);
	else
		*result = tlk_request_call(current_pt_regs(), &tlk_worker_calls);
	if (stay->ending == TLK_DONE && tlk_result_is_special(*result))
		*result = tlk_request_settle(stay, *result);
	/* Files that the request closed are released before its result shows. */
	tlk_exit_work_serve();
	if (stay->ending != TLK_DONE)
		return false;
	atomic64_inc(stay->refused != refused ? &worker->ring->counts.refused :
						&worker->ring->counts.executed);
	return true;
}

/* Serves until something sends the worker home. Returns the number served or why it stopped. */
static long serve(struct worker *worker)
	__must_hold(&worker->ring->workers->idle.lock)
{
	struct tlk_ring *ring = worker->ring;
	struct tlk_workers *workers = ring->workers;
	long served = 0, result;
	int error, slot;

	while (!(error = must_leave(ring))) {
		slot = take_slot(ring);
		if (slot < 0) {
			rest(ring);
			continue;
		}
		worker->slot = slot;
		wake_worker(ring);
		spin_unlock(&workers->idle.lock);
		if (make_request(worker, &result)) {
			spin_lock(&workers->idle.lock);
			finish_slot(ring, slot, result);
			served++;
		} else {
			spin_lock(&workers->idle.lock);
			redo_slot(ring, slot);
		}
	}
	/* The wake-up that brought this worker may have been meant for what it leaves behind. */
	wake_worker(ring);
	return error == -ESHUTDOWN ? served : error;
}

/* The thread ends inside its call, by a filter's verdict: nobody else will put this right. */
static void abandon(struct tlk_stay *stay)
{
	struct worker *worker = container_of(stay, struct worker, stay);
	struct tlk_workers *workers = worker->ring->workers;

	spin_lock(&workers->idle.lock);
	finish_slot(worker->ring, worker->slot, -ENOSYS);
	workers->inside--;
	wake_worker(worker->ring);
	spin_unlock(&workers->idle.lock);
}

/*
 * Under idle.lock. The requester's identity is that of the last who notified while no worker was
 * inside; a first worker may bring its own only if nothing is left from another's.
 */
static int admit(struct tlk_workers *workers, bool vacant)
{
	if (workers->shut)
		return -ESHUTDOWN;
	if (tlk_identity_is_current(&workers->identity))
		return 0;
	if (!vacant)
		return -EPERM;
	tlk_identity_put(&workers->identity);
	tlk_identity_take(&workers->identity);
	return 0;
}

long tlk_worker_serve(struct tlk_ring *ring, struct file *file)
{
	struct tlk_workers *workers = ring->workers;
	struct worker worker = { .ring = ring };
	struct pt_regs *regs = current_pt_regs();
	struct tlk_door door;
	long ret;

	atomic64_inc(&ring->counts.crossings);
	door = tlk_stay_begin(&worker.stay, file, regs, &tlk_worker_calls, abandon);
	spin_lock(&workers->idle.lock);
	ret = admit(workers, !workers->inside && !workers->unfinished);
	if (!ret) {
		workers->inside++;
		ret = serve(&worker);
		workers->inside--;
	}
	spin_unlock(&workers->idle.lock);
	if (ret == -EINTR)
		atomic64_inc(&ring->counts.interrupted);
	if (ret == -EBUSY)
		atomic64_inc(&ring->counts.bypassed);
	tlk_stay_end(&worker.stay, regs, door);
	return ret;
}

/* ---- Requesters ---- */

static int notify(struct tlk_ring *ring, unsigned int count)
{
	struct tlk_workers *workers = ring->workers;
	int error = admit(workers, !workers->inside);

	if (error)
		return error;
	if (count > ring->mask + 1 - workers->unfinished)
		return -EAGAIN;
	WRITE_ONCE(workers->unfinished, workers->unfinished + count);
	WRITE_ONCE(workers->tail, workers->tail + count);
	wake_worker(ring);
	return 0;
}

long tlk_worker_notify(struct tlk_ring *ring, unsigned long argument)
{
	struct tlk_workers *workers = ring->workers;
	int error;

	if (argument > ring->mask + 1)
		return -EINVAL;
	atomic64_inc(&ring->counts.crossings);
	spin_lock(&workers->idle.lock);
	error = notify(ring, argument);
	spin_unlock(&workers->idle.lock);
	return error ? error : (long)argument;
}

/* Under idle.lock, which is given up meanwhile. */
static int wait_for(struct tlk_workers *workers, unsigned int left)
	__must_hold(&workers->idle.lock)
{
	DEFINE_WAIT(wait);
	int error = 0;

	workers->wait_left = workers->waiting++ ? max(workers->wait_left, left) : left;
	for (;;) {
		prepare_to_wait(&workers->done, &wait, TASK_INTERRUPTIBLE);
		if (workers->unfinished <= left)
			break;
		error = workers->shut ? -ESHUTDOWN : signal_pending(current) ? -EINTR : 0;
		if (error)
			break;
		spin_unlock(&workers->idle.lock);
		schedule();
		spin_lock(&workers->idle.lock);
	}
	finish_wait(&workers->done, &wait);
	workers->waiting--;
	return error;
}

long tlk_worker_wait(struct tlk_ring *ring, unsigned long argument)
{
	struct tlk_workers *workers = ring->workers;
	unsigned int count = argument & 0xffff;
	unsigned int left = argument >> 16 & 0xffff;
	long ret;

	if (argument >> 32 || count > ring->mask + 1)
		return -EINVAL;
	atomic64_inc(&ring->counts.crossings);
	spin_lock(&workers->idle.lock);
	ret = notify(ring, count);
	if (!ret)
		ret = wait_for(workers, left);
	if (!ret)
		ret = workers->unfinished;
	spin_unlock(&workers->idle.lock);
	return ret;
}

void tlk_worker_shut(struct tlk_ring *ring)
{
	struct tlk_workers *workers = ring->workers;

	spin_lock(&workers->idle.lock);
	WRITE_ONCE(workers->shut, true);
	wake_up_all_locked(&workers->idle);
	wake_up_all(&workers->done);
	spin_unlock(&workers->idle.lock);
}
