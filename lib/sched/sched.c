// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * The scheduler of fine-grained threads (wrapped-system-call, section 2). It owns calls and their
 * continuations, and decides when to flush the batch: when N calls are queued, when no thread is
 * ready, or when the oldest call is due. It also decides when to look at the events: an
 * epoll_wait(2) is then the last call of the flush. Threads are the business of thread.c, what they
 * wait for that of event.c, and the execution of calls that of batch.c.
 */
#include "enter.h"
#include "state.h"

#include <errno.h>
#include <time.h>

#define TURNS_MAX 256u		/* threads run between two flushes, and by a tl_sched_run_once() */
#define ROUNDS_MAX 8u		/* flushes between two looks at the events */
#define PLAIN_MAX 2u		/* calls that cost more in a batch than one by one */

/* Why threads stop to run for a while. */
enum reason { REASON_FULL, REASON_IDLE, REASON_DEADLINE, REASON_TURNS, REASON_STOP };

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static bool stop_asked(const struct tl_sched *sched)
{
	return __atomic_load_n(&sched->stop, __ATOMIC_RELAXED);
}

/* ---- Calls ------------------------------------------------------------------------------- */

/* The call in a slot is complete. Inlined twice, so that a strict order costs nothing more. */
static inline __attribute__((always_inline)) void
call_deliver(struct tl_sched *sched, const struct tl_completion *call,
	     const struct tl_request *request)
{
	if (call->result)
		*call->result = request->result;
	if (call->continuation) {
		sched->head.awaited--;
		thread_deliver(&sched->threads, thread_of(call->continuation));
	}
}

/*
 * In any order the completed calls need not be the oldest. A slot is free again once its call has
 * been delivered, so that no later flush delivers the call again.
 */
static int flush_unordered(struct tl_sched *sched)
{
	struct tl_batch *batch = sched->head.batch;
	struct tl_request *request = batch->requests, *end = batch->next;
	const struct tl_completion *call = sched->head.completions;
	int n = tl_batch_flush(batch);

	for (; n > 0 && request != end; request++, call++) {
		if (__atomic_load_n(&request->state, __ATOMIC_ACQUIRE) != TL_DONE)
			continue;
		request->state = TL_FREE;
		call_deliver(sched, call, request);
	}
	return n;
}

/* Are the queued calls no program, and so few that plain calls are cheaper than a batch? */
static inline bool calls_are_few(const struct tl_sched *sched)
{
	const struct tl_batch *batch = sched->head.batch;

	return tl_batch_queued(batch) - 1 < PLAIN_MAX && !batch->program && !sched->unordered &&
	       batch->first->state == TL_SUBMITTED;
}

/*
 * Makes few calls one by one. A call is no longer queued when its result is delivered: a handler
 * that leaves the next call by a jump must not have it delivered again. One that interrupts a call
 * ends the flush, as in a batch.
 */
static int flush_few(struct tl_sched *sched)
{
	struct tl_batch *batch = sched->head.batch;
	const struct tl_completion *call =
		sched->head.completions + (batch->first - batch->requests);
	int64_t result;
	int n = 0;

	do {
		struct tl_request *request = batch->first;

		sched->own_crossings += tl_plain_execute(request, TL_CALL_BATCH);
		result = request->result;
		request->state = TL_FREE;
		batch->first++;
		call_deliver(sched, call++, request);
		n++;
	} while (batch->first != batch->next && result != -EINTR);
	if (batch->first == batch->next)
		batch->first = batch->next = batch->requests;
	sched->stats.calls += (uint32_t)n;
	return n;
}

/*
 * Makes queued calls, all of them if no signal arrives, and synchronises the continuations. Returns
 * the number of completed calls.
 */
static int flush_once(struct tl_sched *sched)
{
	struct tl_batch *batch = sched->head.batch;
	const struct tl_request *request = batch->first;
	const struct tl_completion *call = sched->head.completions + (request - batch->requests);
	int n;

	if (calls_are_few(sched))
		return flush_few(sched);
	n = sched->unordered ? flush_unordered(sched) : tl_batch_flush(batch);
	if (n < 0) {
		bool continues = n == -EINTR || n == -ETIME; /* a program, at the next flush */

		return continues ? 0 : n;
	}
	sched->stats.calls += (uint32_t)n;
	if (sched->unordered)
		return n;
	for (const struct tl_completion *end = call + n; call != end; call++, request++)
		call_deliver(sched, call, request);
	return n;
}

/* Results have arrived; some may complete registrations of events. */
static int flush_end(struct tl_sched *sched)
{
	struct events *events = &sched->events;
	int error = 0;

	sched->oldest_ns = 0;
	if (events->controls)
		tl_events_controlled(sched);
	if (events->looked != LOOK_NONE) {
		sched->look = NULL;
		error = tl_events_looked(sched);
		if (events->timers_n)
			tl_events_expire(sched);
	}
	return error;
}

/*
 * Makes all queued calls. Returns 0 or -errno. After a signal handler has stopped the scheduler,
 * calls may still be queued.
 */
static int flush_all(struct tl_sched *sched)
{
	const struct events *events = &sched->events;
	struct tl_batch *batch = sched->head.batch;
	int result = 0;

	if (!batch->requests)
		return -EPERM;
	while (result >= 0 && tl_batch_queued(batch) && !stop_asked(sched))
		result = flush_once(sched);
	/* A signal handler has stopped the run before the look was made: it may not sleep later. */
	if (sched->look && events->looked == LOOK_NONE)
		sched->look->args[3] = 0;
	return result < 0 ? result : flush_end(sched);
}

int tl_sched_make_room(struct tl_sched *sched, unsigned int n)
{
	struct tl_batch *batch = sched->head.batch;

	if (batch->requests && n > (size_t)(batch->end - batch->requests))
		return -EINVAL;
	while (!batch->requests || n > (size_t)(batch->end - batch->next)) {
		int flushed = flush_once(sched);

		if (flushed < 0)
			return flushed;
		sched->stats.flushes_full++;
		flushed = flush_end(sched);
		if (flushed < 0)
			return flushed;
	}
	return (int)(batch->next - batch->requests);
}

int tl_sched_jump(struct tl_sched *sched, unsigned int slot, enum tl_condition condition,
		  unsigned int target)
{
	return tl_batch_jump(sched->head.batch, slot, condition, target);
}

/* ---- Looks at the events ----------------------------------------------------------------- */

/* Queues a look behind the calls that are about to be flushed. */
static void look_queue(struct tl_sched *sched, int timeout_ms)
{
	struct events *events = &sched->events;

	/* It may sleep, so all other calls are made before it, in any order or not. */
	tl_batch_barrier(sched->head.batch);
	sched->own_calls++;
	sched->look = sched->head.batch->next;
	TL_CALL(sched, NULL, &events->looked, SYS_EPOLL_WAIT, events->set.fd, events->found,
		EVENTS_FOUND_MAX, timeout_ms);
}

static void look_make(struct tl_sched *sched, int timeout_ms)
{
	struct events *events = &sched->events;

	sched->own_crossings++;
	events->looked = raw_syscall(SYS_EPOLL_WAIT, (uint64_t)events->set.fd,
				     (uintptr_t)events->found, EVENTS_FOUND_MAX,
				     (uint64_t)(int64_t)timeout_ms, 0, 0);
}

/* Flushes and looks. It sleeps limit_ns at most, and not while any thread may become ready. */
static __attribute__((noinline)) int flush_and_look(struct tl_sched *sched, int64_t limit_ns)
{
	struct tl_batch *batch = sched->head.batch;
	uint32_t queued = tl_batch_queued(batch);
	int timeout_ms = 0, error;

	if (!sched->threads.ready && !sched->head.awaited && !sched->events.adding)
		timeout_ms = limit_ns < 0 && !sched->events.timers_n ? -1 :
			     tl_events_timeout_ms(&sched->events, limit_ns);
	sched->rounds = 0;
	/* A stop has left a look queued: a second one would overwrite its results. */
	if (sched->look)
		return flush_all(sched);
	sched->stats.looks++;
	if (queued >= PLAIN_MAX && batch->next != batch->end) {
		look_queue(sched, timeout_ms);
		return flush_all(sched);
	}
	error = queued ? flush_all(sched) : 0;
	/* A signal handler that has stopped the run must not find it asleep. */
	if (error || stop_asked(sched))
		return error;
	look_make(sched, sched->threads.ready ? 0 : timeout_ms);
	return flush_end(sched);
}

static int flush(struct tl_sched *sched, enum reason reason, bool look, int64_t limit_ns)
{
	switch (reason) {
	case REASON_FULL:
		sched->stats.flushes_full++;
		break;
	case REASON_IDLE:
		sched->stats.flushes_idle++;
		break;
	default:
		sched->stats.flushes_deadline++;
		break;
	}
	sched->rounds++;
	return look ? flush_and_look(sched, limit_ns) : flush_all(sched);
}

/* ---- Running ----------------------------------------------------------------------------- */

/* Is the oldest queued call due? */
static bool deadline_is_over(struct tl_sched *sched)
{
	uint64_t now = now_ns();

	if (!sched->oldest_ns)
		sched->oldest_ns = now;
	return now - sched->oldest_ns >= sched->deadline_ns;
}

/* Why no thread may run now; REASON_TURNS if one may. */
static enum reason reason_to_stop(struct tl_sched *sched)
{
	uint32_t queued = tl_batch_queued(sched->head.batch);

	if (stop_asked(sched))
		return REASON_STOP;
	if (queued >= sched->flush_at)
		return REASON_FULL;
	if (!sched->threads.ready)
		return REASON_IDLE;
	if (sched->deadline_ns && queued && deadline_is_over(sched))
		return REASON_DEADLINE;
	return REASON_TURNS;
}

/*
 * Runs threads, oldest first, until none is ready, `turns` have run, or calls are queued up to
 * `full`. Returns how many have run, or -errno. The loop is what a thread costs, so it is short.
 */
static int threads_turn(struct tl_sched *sched, int turns, const struct tl_request *full)
{
	struct threads *threads = &sched->threads;
	const struct tl_batch *batch = sched->head.batch;
	struct thread *thread;
	int left = turns, error;

	while ((thread = thread_of(threads->ready))) {
		thread_take(threads, thread);
		sched->current = thread;
		thread->head.continues = 0;
		thread->head.entry(&thread->head, thread->head.arg);
		if (!thread->head.continues) {
			error = thread->event || thread->timer ?
					tl_events_thread_ended(sched, thread) : 0;
			thread_put(threads, thread);
			if (error)
				return error;
		}
		if (!--left || batch->next >= full || stop_asked(sched))
			break;
		/* An idle flush without a look, by the shortest way: it makes a thread ready. */
		if (!threads->ready && sched->head.awaited &&
		    (sched->rounds < ROUNDS_MAX || !events_exist(&sched->events))) {
			sched->rounds++;
			sched->stats.flushes_idle++;
			error = flush_all(sched);
			if (error)
				return error;
		}
	}
	return turns - left;
}

/* Runs threads, and says why it has stopped. Returns 0 or -errno. */
static int threads_run(struct tl_sched *sched, enum reason *reason)
{
	const struct tl_batch *batch = sched->head.batch;
	int left = TURNS_MAX, made = 0;

	while ((*reason = reason_to_stop(sched)) == REASON_TURNS && left) {
		/* Between two threads there may be a deadline. */
		made = threads_turn(sched, sched->deadline_ns ? 1 : left,
				    batch->first + sched->flush_at);
		if (made < 0)
			break;
		sched->stats.threads_run += (uint64_t)made;
		left -= made;
	}
	sched->current = NULL;
	return made < 0 ? made : 0;
}

/* Is anything left to run, to make, or to wait for? */
static bool work_is_left(const struct tl_sched *sched)
{
	return sched->threads.ready || tl_batch_queued(sched->head.batch) ||
	       events_exist(&sched->events);
}

/*
 * Runs threads and makes their calls, once. It looks at the events if `look` is true and there is
 * nothing better to do, or if it has not looked for long. Returns 1 if it has looked, 0, or -errno.
 */
static int round_make(struct tl_sched *sched, bool look, int64_t limit_ns)
{
	enum reason reason;
	int error = threads_run(sched, &reason), result;

	/* One of the threads may have forked, and this is then the child. */
	if (error || !sched->head.batch->requests)
		return error ? error : -EPERM;
	if (reason == REASON_STOP || !work_is_left(sched))
		return 0;
	look = look && events_exist(&sched->events) &&
	       (sched->rounds >= ROUNDS_MAX || reason == REASON_TURNS ||
		(reason == REASON_IDLE && !sched->head.awaited));
	if (reason == REASON_TURNS && !look)
		return 0;
	result = flush(sched, reason, look, limit_ns);
	return result < 0 ? result : look;
}

static int run_begin(struct tl_sched *sched)
{
	if (!sched->head.batch->requests)
		return -EPERM;
	if (sched->running)
		return -EDEADLK;
	sched->running = true;
	return 0;
}

static void run_end(struct tl_sched *sched)
{
	sched->running = false;
	__atomic_store_n(&sched->stop, false, __ATOMIC_RELAXED);
}

int tl_sched_run(struct tl_sched *sched)
{
	int result = run_begin(sched);

	if (result)
		return result;
	do {
		result = round_make(sched, true, -1);
	} while (result >= 0 && !stop_asked(sched) && work_is_left(sched));
	run_end(sched);
	return result < 0 ? result : 0;
}

int tl_sched_run_once(struct tl_sched *sched, int64_t timeout_ns)
{
	bool work = sched->threads.ready || tl_batch_queued(sched->head.batch), looked = false;
	uint64_t last = sched->stats.threads_run + TURNS_MAX;
	int64_t limit_ns = work ? 0 : timeout_ns;
	int result = run_begin(sched);

	if (result)
		return result;
	do {
		result = round_make(sched, !looked, limit_ns);
		looked |= result > 0;
		work = sched->threads.ready || tl_batch_queued(sched->head.batch);
	} while (result >= 0 && !stop_asked(sched) && sched->stats.threads_run < last &&
		 (work || (!looked && events_exist(&sched->events))));
	if (sched->events.timer_fd >= 0)
		tl_events_arm(sched);
	run_end(sched);
	return result < 0 ? result : work_is_left(sched);
}

void tl_sched_stop(struct tl_sched *sched)
{
	__atomic_store_n(&sched->stop, true, __ATOMIC_RELAXED);
}
