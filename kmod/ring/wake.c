// SPDX-License-Identifier: GPL-2.0-only
/*
 * Decides which of a queue's workers rest and which are woken. This file owns that decision and the
 * questions on which it depends: who is awake, whether a CPU is idle, how long requests will take.
 * queue.h says why no wake-up is lost, and owns everything else of the queue.
 */
#include <linux/cpumask.h>
#include <linux/ktime.h>
#include <linux/lockdep.h>
#include <linux/sched/clock.h>
#include <linux/sched/signal.h>

#include "compat/symbols.h"
#include "ring/queue.h"

/* CPUs that are asked whether they are idle. */
#define CPUS_ASKED 8

/* How much work makes it worth while to wake another worker: a few wake-ups' time. */
#define HELP_NS (20 * NSEC_PER_USEC)

/* Is a CPU idle that the thread may use? The answer may be old when it is given. */
static bool has_idle_cpu(const struct task_struct *task)
{
	unsigned int cpu, asked = 0;

	if (num_online_cpus() == 1)
		return false;
	for_each_cpu_wrap(cpu, task->cpus_ptr, raw_smp_processor_id() + 1) {
		if (cpu_online(cpu) && tlk_cpu_is_idle(cpu))
			return true;
		if (++asked == CPUS_ASKED)
			break;
	}
	return false;
}

/* The worker that rested last, if it is of use: those that spin find work without being woken. */
static struct tlk_queue_worker *useful_worker_locked(struct tlk_queue *queue)
	__must_hold(&queue->lock)
{
	lockdep_assert_held(&queue->lock);
	if (!tlk_queue_has_work(queue) || queue->spinning)
		return NULL;
	return list_first_entry_or_null(&queue->idle, struct tlk_queue_worker, idle);
}

/* From here on the worker counts as awake, and is no longer found among those at rest. */
static void wake_locked(struct tlk_queue *queue, struct tlk_queue_worker *worker)
	__must_hold(&queue->lock)
{
	lockdep_assert_held(&queue->lock);
	list_del_init(&worker->idle);
	atomic_inc(&queue->awake);
	atomic64_inc(&queue->ring->counts.wakeups);
	/* The worker's stack stays until it has had the lock once more. */
	wake_up_process(worker->task);
}

/* Wakes a worker for requests that no awake worker will take. */
void tlk_wake_if_none_is_awake_locked(struct tlk_queue *queue) __must_hold(&queue->lock)
{
	struct tlk_queue_worker *worker = useful_worker_locked(queue);

	if (worker && (!TLK_SLEEP_IS_SEEN || !atomic_read(&queue->awake)))
		wake_locked(queue, worker);
}

/* The same, in an interrupt of its own: a switch of threads can wake nobody. */
void tlk_wake_kick(struct irq_work *work)
{
	struct tlk_queue *queue = container_of(work, struct tlk_queue, kick);
	unsigned long flags;

	spin_lock_irqsave(&queue->lock, flags);
	tlk_wake_if_none_is_awake_locked(queue);
	spin_unlock_irqrestore(&queue->lock, flags);
}

/*
 * The worker is about to sleep. atomic_dec_return()'s full barrier pairs with that of
 * notify_locked().
 */
void tlk_wake_worker_went(struct tlk_sleep *sleep)
{
	struct tlk_queue_worker *worker = container_of(sleep, struct tlk_queue_worker, sleep);
	struct tlk_queue *queue = worker->queue;

	if (worker->resting)
		return;
	if (!atomic_dec_return(&queue->awake) && tlk_queue_has_work(queue) &&
	    !list_empty(&queue->idle))
		irq_work_queue(&queue->kick);
}

void tlk_wake_worker_came(struct tlk_sleep *sleep)
{
	struct tlk_queue_worker *worker = container_of(sleep, struct tlk_queue_worker, sleep);

	if (!worker->resting)
		atomic_inc(&worker->queue->awake);
}

void tlk_wake_for_new_locked(struct tlk_queue *queue)
{
	struct tlk_queue_worker *worker = useful_worker_locked(queue);

	if (worker && (!TLK_SLEEP_IS_SEEN || !atomic_read(&queue->awake) ||
		       has_idle_cpu(worker->task)))
		wake_locked(queue, worker);
}

void tlk_wake_all_locked(struct tlk_queue *queue)
{
	struct tlk_queue_worker *worker, *next;

	lockdep_assert_held(&queue->lock);
	list_for_each_entry_safe(worker, next, &queue->idle, idle)
		wake_locked(queue, worker);
}

/*
 * This worker has taken a request and leaves others behind. How long they would keep it busy is
 * guessed from how long the last call took. Before the first guess another worker is of use.
 */
static bool is_worth_help(struct tlk_queue_worker *worker)
{
	struct tlk_queue *queue = worker->queue;
	u64 now = sched_clock();
	u32 left;

	if (worker->took_ns)
		WRITE_ONCE(queue->call_ns, clamp_t(s64, now - worker->took_ns, 1, U32_MAX));
	worker->took_ns = now;
	if (now - worker->sought_ns < HELP_NS)
		return false;
	left = READ_ONCE(queue->tail) - (u32)atomic_read(&queue->head);
	left += READ_ONCE(queue->redo_count);
	return !READ_ONCE(queue->call_ns) || (u64)left * READ_ONCE(queue->call_ns) >= HELP_NS;
}

void tlk_wake_seek_help(struct tlk_queue_worker *worker)
{
	struct tlk_queue *queue = worker->queue;
	struct tlk_queue_worker *other;

	if (TLK_SLEEP_IS_SEEN && (num_online_cpus() == 1 || !is_worth_help(worker)))
		return;
	worker->sought_ns = worker->took_ns;
	spin_lock_irq(&queue->lock);
	other = useful_worker_locked(queue);
	if (other && (!TLK_SLEEP_IS_SEEN || has_idle_cpu(other->task)))
		wake_locked(queue, other);
	spin_unlock_irq(&queue->lock);
}

static void spin_for_work(struct tlk_queue *queue)
{
	u64 end = ktime_get_ns() + queue->spin_ns;
	unsigned int look;

	while (tlk_queue_spin_on(end))
		for (look = 0; look < TLK_QUEUE_LOOKS; look++)
			if (tlk_queue_has_work(queue) || READ_ONCE(queue->shut))
				return;
}

/*
 * Sleeps until somebody has taken the worker off the list, or something else is to be done. A
 * notify takes the lock, so that the look behind list_add() misses none.
 */
static void sleep_locked(struct tlk_queue_worker *worker) __must_hold(&worker->queue->lock)
{
	struct tlk_queue *queue = worker->queue;

	lockdep_assert_held(&queue->lock);
	worker->resting = true;
	list_add(&worker->idle, &queue->idle);
	/* Whoever finds no worker awake finds this one on the list. */
	smp_mb__before_atomic();
	atomic_dec(&queue->awake);
	for (;;) {
		/* The caller looks for signals. */
		set_current_state(TASK_INTERRUPTIBLE);
		if (list_empty(&worker->idle) || tlk_queue_has_work(queue) || queue->shut ||
		    signal_pending(current))
			break;
		spin_unlock_irq(&queue->lock);
		schedule();
		spin_lock_irq(&queue->lock);
	}
	__set_current_state(TASK_RUNNING);
	if (!list_empty(&worker->idle)) {
		list_del_init(&worker->idle);
		atomic_inc(&queue->awake);
	}
	worker->resting = false;
}

/* Returns when there may be something to do, or when the worker must leave. */
void tlk_wake_rest(struct tlk_queue_worker *worker)
{
	struct tlk_queue *queue = worker->queue;

	worker->took_ns = 0;
	spin_lock_irq(&queue->lock);
	if (queue->spin_ns) {
		WRITE_ONCE(queue->spinning, queue->spinning + 1);
		spin_unlock_irq(&queue->lock);
		spin_for_work(queue);
		spin_lock_irq(&queue->lock);
		WRITE_ONCE(queue->spinning, queue->spinning - 1);
	}
	if (!tlk_queue_has_work(queue) && !queue->shut) {
		atomic64_inc(&queue->ring->counts.sleeps);
		sleep_locked(worker);
	}
	spin_unlock_irq(&queue->lock);
}
