// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * sched.c - the scheduler of fine-grained threads (wrapped-system-call, section 2). It owns calls
 * and their continuations, and decides when to flush the batch: when N calls are queued, when no
 * thread is ready, or when the oldest call is due. It also decides when to look at the events: an
 * epoll_wait(2) is then the last call of the flush. Threads are the business of thread.c, what
 * they wait for that of event.c, and the execution of calls that of batch.c.
 */
#include "internal.h"
#include "enter.h"
#include "sched.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FLUSH_AT_DEFAULT 32u	/* calls; the paper's N */
#define CONFIG_BYTES_FIRST 24u	/* of struct tl_sched_config in the first release */
#define CONFIG_BYTES_MAX 4096u	/* of any release */
#define TURNS_MAX 256u		/* threads run between two flushes, and by one tl_sched_run_once() */
#define ROUNDS_MAX 8u		/* flushes between two looks at the events */
#define PLAIN_MAX 2u		/* calls that cost more in a batch than one by one */

_Static_assert(offsetof(struct tl_sched, head) == 0 && sizeof(struct tl_sched_head) == 24 &&
	       offsetof(struct tl_sched_head, awaited) == 16 &&
	       sizeof(struct tl_completion) == 16,
	       "programs have the inline functions compiled in");

_Static_assert(sizeof(struct tl_sched_config) >= CONFIG_BYTES_FIRST &&
	       offsetof(struct tl_sched_config, deadline_ns) == 16 &&
	       offsetof(struct tl_sched_stats, flushes_deadline) == 48,
	       "structures of the binary interface grow at their end only");

/* Why threads stop to run for a while. */
enum reason { REASON_FULL, REASON_IDLE, REASON_DEADLINE, REASON_TURNS, REASON_STOP };

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/*
 * Copies the structure as the program knows it. A release may add fields at its end, where 0 means
 * what was before. An older program therefore gives fewer fields, and a newer program may give more
 * if they are 0.
 */
static int config_copy(struct tl_sched_config *out, const struct tl_sched_config *in)
{
	const char *bytes = (const char *)in;

	if (in->size < CONFIG_BYTES_FIRST)
		return -EINVAL;
	if (in->size > CONFIG_BYTES_MAX)
		return -E2BIG;
	for (size_t i = sizeof(*out); i < in->size; i++)
		if (bytes[i])
			return -E2BIG;
	memcpy(out, in, in->size < sizeof(*out) ? in->size : sizeof(*out));
	return 0;
}

static int config_read(struct tl_sched_config *out, const struct tl_sched_config *in)
{
	uint32_t most = TL_ENTRIES_MAX;
	int result;

	memset(out, 0, sizeof(*out));
	if (in) {
		result = config_copy(out, in);
		if (result)
			return result;
	}
	if (!out->flush_at)
		out->flush_at = FLUSH_AT_DEFAULT;
	if (out->flags & TL_UNORDERED)
		most = TL_UNORDERED_ENTRIES_MAX;
	if (out->flush_at > most || out->entries > most)
		return -EINVAL;
	if (!out->entries) {
		/* Twice N: a thread may queue more than N calls before the scheduler flushes. */
		out->entries = 2;
		while (out->entries < 2 * out->flush_at && out->entries < most)
			out->entries *= 2;
	}
	return out->flush_at > out->entries ? -EINVAL : 0;
}

int tl_sched_create(struct tl_sched **out, const struct tl_sched_config *config)
{
	struct tl_sched_config own;
	struct tl_sched *sched;
	int result;

	result = config_read(&own, config);
	if (result)
		return result;
	sched = tl_heap_resize(NULL, 1, sizeof(*sched));
	if (!sched)
		return -ENOMEM;
	memset(sched, 0, sizeof(*sched));
	sched->flush_at = own.flush_at;
	sched->deadline_ns = own.deadline_ns;
	sched->unordered = own.flags & TL_UNORDERED;
	sched->threads.ready_end = &sched->threads.ready;
	tl_events_init(&sched->events);
	sched->head.completions =
		tl_heap_resize(NULL, own.entries, sizeof(*sched->head.completions));
	if (!sched->head.completions) {
		result = -ENOMEM;
		goto free_sched;
	}
	result = tl_batch_create(&sched->head.batch, own.entries, own.flags);
	if (result)
		goto free_completions;
	*out = sched;
	return 0;

free_completions:
	free(sched->head.completions);
free_sched:
	free(sched);
	return result;
}

void tl_sched_destroy(struct tl_sched *sched)
{
	if (!sched)
		return;
	tl_threads_free(&sched->threads);
	tl_events_free(&sched->events);
	tl_batch_destroy(sched->head.batch);
	free(sched->head.completions);
	free(sched);
}

enum tl_backend tl_sched_backend(const struct tl_sched *sched)
{
	return tl_batch_backend(sched->head.batch);
}

static bool stop_asked(const struct tl_sched *sched)
{
	return __atomic_load_n(&sched->stop, __ATOMIC_RELAXED);
}

/* ---- Calls ------------------------------------------------------------------------------- */

/* The call in a slot is complete. Inlined twice, so that a strict order costs nothing more. */
static inline __attribute__((always_inline)) uint32_t
call_deliver(struct threads *threads, const struct tl_completion *call,
	     const struct tl_request *request)
{
	struct thread *thread = thread_of(call->continuation);

	if (call->result)
		*call->result = request->result;
	if (!thread)
		return 0;
	thread_deliver(threads, thread);
	return 1;
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
		sched->head.awaited -= call_deliver(&sched->threads, call, request);
	}
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
	uint32_t delivered = 0;
	int n;

	if (sched->unordered)
		n = flush_unordered(sched);
	else if (tl_batch_queued(batch) <= PLAIN_MAX)
		n = tl_batch_flush_plain(batch);
	else
		n = tl_batch_flush(batch);
	if (n < 0) /* A program goes on at the next flush. */
		return n == -EINTR || n == -ETIME ? 0 : n;
	sched->stats.calls += (uint32_t)n;
	if (sched->unordered)
		return n;
	for (const struct tl_completion *end = call + n; call != end; call++, request++)
		delivered += call_deliver(&sched->threads, call, request);
	sched->head.awaited -= delivered;
	return n;
}

/* Something has become of the queued calls: the events may be concerned. */
static int flush_end(struct tl_sched *sched)
{
	struct events *events = &sched->events;
	int error = 0;

	sched->oldest_ns = 0;
	events->now_ns = 0;
	if (events->controls)
		tl_events_controlled(sched);
	if (events->looked != LOOK_NONE) {
		error = tl_events_looked(sched);
		tl_events_expire(sched);
	}
	return error;
}

int tl_sched_flush(struct tl_sched *sched)
{
	struct tl_batch *batch = sched->head.batch;
	int result = 0;

	if (!batch->requests)
		return -EPERM;
	while (result >= 0 && tl_batch_queued(batch) && !stop_asked(sched))
		result = flush_once(sched);
	/* A signal handler has stopped the run before the look was made: it may not sleep later. */
	if (sched->look_queued && tl_batch_queued(batch))
		(batch->next - 1)->args[3] = 0;
	sched->look_queued = false;
	return result < 0 ? result : flush_end(sched);
}

int tl_sched_reserve(struct tl_sched *sched, unsigned int n)
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
	sched->look_queued = true;
	TL_CALL(sched, NULL, &events->looked, SYS_epoll_wait, events->epoll_fd, events->found,
		EVENTS_FOUND_MAX, timeout_ms);
}

static void look_make(struct tl_sched *sched, int timeout_ms)
{
	struct events *events = &sched->events;

	sched->own_crossings++;
	events->looked = raw_syscall(SYS_epoll_wait, (uint64_t)events->epoll_fd,
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
		timeout_ms = tl_events_timeout_ms(&sched->events, limit_ns);
	sched->rounds = 0;
	sched->stats.looks++;
	if (queued >= PLAIN_MAX && batch->next != batch->end) {
		look_queue(sched, timeout_ms);
		return tl_sched_flush(sched);
	}
	error = queued ? tl_sched_flush(sched) : 0;
	if (error || tl_batch_queued(batch))
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
	return look ? flush_and_look(sched, limit_ns) : tl_sched_flush(sched);
}

/* ---- Running ----------------------------------------------------------------------------- */

static void thread_ended(struct tl_sched *sched, struct thread *thread, int *error)
{
	if (thread->event || thread->timer)
		*error = tl_events_thread_ended(sched, thread);
	thread_put(&sched->threads, thread);
}

/* Is the oldest queued call due? */
static bool deadline_is_over(struct tl_sched *sched)
{
	uint64_t now = now_ns();

	if (!sched->oldest_ns)
		sched->oldest_ns = now;
	return now - sched->oldest_ns >= sched->deadline_ns;
}

/* Runs threads, oldest first. */
static enum reason threads_run(struct tl_sched *sched, int *error)
{
	struct threads *threads = &sched->threads;
	struct tl_batch *batch = sched->head.batch;
	enum reason reason = REASON_TURNS;
	struct thread *thread;

	for (uint32_t turns = 0; turns < TURNS_MAX && !*error; turns++) {
		reason = REASON_STOP;
		if (stop_asked(sched))
			break;
		reason = REASON_FULL;
		if (tl_batch_queued(batch) >= sched->flush_at)
			break;
		reason = REASON_IDLE;
		thread = threads->ready;
		if (!thread)
			break;
		reason = REASON_DEADLINE;
		if (sched->deadline_ns && tl_batch_queued(batch) && deadline_is_over(sched))
			break;
		thread_take(threads, thread);
		sched->current = thread;
		sched->stats.threads_run++;
		thread->head.goes_on = 0;
		thread->head.entry(&thread->head, thread->head.arg);
		if (!thread->head.goes_on)
			thread_ended(sched, thread, error);
		reason = REASON_TURNS;
	}
	sched->current = NULL;
	return reason;
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
	int error = 0, result;
	enum reason reason = threads_run(sched, &error);

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
	int result = run_begin(sched);

	if (result)
		return result;
	do {
		result = round_make(sched, !looked, work ? 0 : timeout_ns);
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

int tl_sched_get_stats(const struct tl_sched *sched, struct tl_sched_stats *out)
{
	struct tl_stats counts = { .size = sizeof(counts) };
	struct tl_sched_stats own = sched->stats;
	uint32_t size = out->size;
	int result;

	if (size < sizeof(out->size))
		return -EINVAL;
	result = tl_batch_get_stats(sched->head.batch, &counts);
	if (result < 0)
		return result;
	own.calls -= sched->own_calls;
	own.crossings = counts.crossings + sched->own_crossings;
	own.size = size < sizeof(own) ? size : sizeof(own);
	memcpy(out, &own, own.size);
	return 0;
}
