// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * sched.c - the scheduler of fine-grained threads (wrapped-system-call, section 2). It owns calls
 * and their continuations, and decides when to flush the batch: when N calls are queued, when no
 * thread is ready, or when the oldest call is due. Each flush takes along a poll(2) of the external
 * events. Threads are the business of thread.c, registrations of events that of event.c, and the
 * execution of calls that of batch.c.
 */
#include "event.h"
#include "internal.h"
#include "thread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#define FLUSH_AT_DEFAULT 32u	/* calls; the paper's N */
#define CONFIG_BYTES_FIRST 24u	/* of struct tl_sched_config in the first release */
#define CONFIG_BYTES_MAX 4096u	/* of any release */
#define EVENT_TURNS_MAX 256u	/* threads run between two polls of external events */

/* The continuation and the result of the call in a slot of the batch. */
struct call_record {
	struct tl_thread *continuation;
	int64_t *result;
};

/*
 * One scheduler belongs to one thread of the process. Nothing is locked, and a signal handler may
 * write `stop` alone.
 */
struct tl_sched {
	struct threads threads;		/* first: see threads_of() */
	struct tl_batch *batch;
	struct call_record *calls;	/* one for each slot */
	uint32_t flush_at;
	uint32_t awaited;		/* queued calls that have a continuation */
	uint32_t turns;			/* threads run since the last poll of the events */
	bool unordered;			/* the calls of one flush may be made in any order */
	bool running;
	bool stop;
	uint64_t deadline_ns;
	uint64_t oldest_ns;		/* when the oldest queued call was queued */

	struct events events;
	int poll_slot;			/* of the queued poll, or -1 */
	int64_t poll_result;

	struct tl_sched_stats stats;
};

_Static_assert(offsetof(struct tl_sched, threads) == 0, "threads_of() counts on it");

_Static_assert(sizeof(struct tl_sched_config) >= CONFIG_BYTES_FIRST &&
	       offsetof(struct tl_sched_config, deadline_ns) == 16 &&
	       offsetof(struct tl_sched_stats, flushes_deadline) == 48,
	       "structures of the binary interface grow at their end only");

enum reason { REASON_NONE, REASON_FULL, REASON_IDLE, REASON_DEADLINE };

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
	sched->calls = tl_heap_resize(NULL, own.entries, sizeof(*sched->calls));
	if (!sched->calls) {
		result = -ENOMEM;
		goto free_sched;
	}
	result = tl_batch_create(&sched->batch, own.entries, own.flags);
	if (result)
		goto free_calls;
	*out = sched;
	return 0;

free_calls:
	free(sched->calls);
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
	tl_batch_destroy(sched->batch);
	free(sched->calls);
	free(sched);
}

enum tl_backend tl_sched_backend(const struct tl_sched *sched)
{
	return tl_batch_backend(sched->batch);
}

/* ---- Calls ------------------------------------------------------------------------------- */

/*
 * The call in a slot is complete. The function is inlined twice, so that a strict order costs
 * nothing more.
 */
static inline __attribute__((always_inline)) void
call_deliver(struct tl_sched *sched, const struct call_record *call,
	     const struct tl_request *request)
{
	if (call->result)
		*call->result = request->result;
	sched->stats.calls += call->result != &sched->poll_result;
	if (call->continuation) {
		sched->awaited--;
		thread_deliver(call->continuation);
	}
}

/*
 * In any order the completed calls need not be the oldest. A slot is free again once its call has
 * been delivered, so that no later flush delivers the call again.
 */
static int flush_unordered(struct tl_sched *sched)
{
	struct tl_request *request = sched->batch->requests, *end = sched->batch->next;
	const struct call_record *call = sched->calls;
	int n = tl_batch_flush(sched->batch);

	for (; n > 0 && request != end; request++, call++) {
		if (__atomic_load_n(&request->state, __ATOMIC_ACQUIRE) != TL_DONE)
			continue;
		request->state = TL_FREE;
		call_deliver(sched, call, request);
	}
	return n;
}

/* Makes one crossing and synchronises the continuations. Returns the number of completed calls. */
static int flush_once(struct tl_sched *sched)
{
	const struct tl_request *request = sched->batch->first;
	const struct call_record *call = sched->calls + (request - sched->batch->requests);
	int n;

	if (sched->unordered)
		return flush_unordered(sched);
	/* A scheduler knows no programs: a number that only they have is that of no call. */
	sched->batch->program = 0;
	n = tl_batch_flush(sched->batch);
	for (int i = 0; i < n; i++)
		call_deliver(sched, &call[i], &request[i]);
	return n;
}

/* Queues a call without bookkeeping of synchronisations. Returns the slot or -EAGAIN. */
static inline int call_queue(struct tl_sched *sched, struct tl_thread *continuation,
			     int64_t *result, uint32_t nr, uint64_t a0, uint64_t a1, uint64_t a2,
			     uint64_t a3, uint64_t a4, uint64_t a5)
{
	int slot = tl_batch_add(sched->batch, nr, a0, a1, a2, a3, a4, a5);

	if (slot >= 0) {
		sched->calls[slot].continuation = continuation;
		sched->calls[slot].result = result;
	}
	return slot;
}

int tl_call(struct tl_sched *sched, struct tl_thread *continuation, int64_t *result, uint32_t nr,
	    uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5)
{
	if (continuation && !continuation->unclaimed)
		return -EINVAL;
	while (call_queue(sched, continuation, result, nr, a0, a1, a2, a3, a4, a5) < 0) {
		int flushed = flush_once(sched);

		if (flushed < 0)
			return flushed;
		sched->stats.flushes_full++;
	}
	if (continuation) {
		continuation->unclaimed--;
		sched->awaited++;
	}
	if (sched->deadline_ns && tl_batch_queued(sched->batch) == 1)
		sched->oldest_ns = now_ns();
	return 0;
}

/* ---- Events ------------------------------------------------------------------------------ */

int tl_event_add(struct tl_sched *sched, int fd, short events, tl_entry entry, void *arg)
{
	return tl_events_add(&sched->events, &(struct pollfd){ fd, events, 0 }, entry, arg);
}

/* What a cancelled thread runs: it was counted just before, and is no thread that has run. */
static void cancelled(struct tl_thread *self, void *arg)
{
	struct tl_sched *sched = arg;

	(void)self;
	sched->stats.threads_run--;
}

/*
 * The event's thread stays in the queue with nothing to do, for the queue has no way back from a
 * thread to the one before it. If the thread has begun, it is the caller: it is not entered again.
 */
int tl_event_remove(struct tl_sched *sched, int fd)
{
	struct tl_thread *thread;
	int result = tl_events_remove(&sched->events, fd, &thread);

	if (!result && thread) {
		thread->entry = cancelled;
		thread->arg = sched;
	}
	return result;
}

/*
 * Queues a poll(2) of all events behind the calls that are about to be flushed. It is not inlined,
 * and neither is poll_deliver(), so that the loop over threads stays small.
 */
static __attribute__((noinline)) void poll_queue(struct tl_sched *sched, bool may_sleep)
{
	sched->poll_result = 0;
	sched->poll_slot = -1;
	if (!sched->events.n)
		return;
	/* The poll may sleep, so all other calls are made before it, in any order or not. */
	tl_batch_barrier(sched->batch);
	/* A full batch has no room: the next flush takes the poll along. */
	sched->poll_slot = call_queue(sched, NULL, &sched->poll_result, SYS_poll,
				      (uint64_t)(uintptr_t)sched->events.polls, sched->events.n,
				      may_sleep ? (uint64_t)-1 : 0, 0, 0, 0);
}

/* After an early return the poll is still queued, and its array may move before it is made. */
static void poll_disarm(struct tl_sched *sched)
{
	struct tl_batch *batch = sched->batch;
	struct tl_request *request = &batch->requests[(uint32_t)sched->poll_slot];

	if (tl_batch_queued(batch)) {
		request->args[0] = 0;
		request->args[1] = 0;
		request->args[2] = 0;
	}
}

/* Creates the threads of the events that the poll has found. Returns 0 or -errno. */
static __attribute__((noinline)) int poll_deliver(struct tl_sched *sched)
{
	if (sched->poll_slot < 0)
		return 0;
	poll_disarm(sched);
	/* The caller must know of a poll that fails: the scheduler would repeat it for ever. */
	if (sched->poll_result < 0 && sched->poll_result != -EINTR)
		return (int)sched->poll_result;
	return sched->poll_result > 0 ? tl_events_deliver(&sched->events, sched) : 0;
}

/* ---- Running ----------------------------------------------------------------------------- */

static bool stop_asked(const struct tl_sched *sched)
{
	return __atomic_load_n(&sched->stop, __ATOMIC_RELAXED);
}

static int flush(struct tl_sched *sched, enum reason reason)
{
	bool idle = !sched->threads.ready && !sched->awaited;
	int result = 0, delivered;

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
	/* The poll may sleep only if no other thread can become ready. */
	poll_queue(sched, idle);
	if (sched->poll_slot >= 0)
		sched->turns = 0;
	while (result >= 0 && tl_batch_queued(sched->batch) && !stop_asked(sched))
		result = flush_once(sched);
	delivered = poll_deliver(sched);
	return result < 0 ? result : delivered;
}

static enum reason flush_reason(const struct tl_sched *sched)
{
	uint32_t queued = tl_batch_queued(sched->batch);

	if (queued >= sched->flush_at)
		return REASON_FULL;
	if (!sched->threads.ready)
		return REASON_IDLE;
	if (sched->deadline_ns && queued && now_ns() - sched->oldest_ns >= sched->deadline_ns)
		return REASON_DEADLINE;
	if (sched->events.n && sched->turns >= EVENT_TURNS_MAX)
		return REASON_DEADLINE;
	return REASON_NONE;
}

static void thread_run(struct tl_sched *sched)
{
	struct tl_thread *thread = thread_next(&sched->threads);

	sched->turns++;
	sched->stats.threads_run++;
	thread->entry(thread, thread->arg);
	if (thread->event_fd >= 0)
		tl_events_rearm(&sched->events, thread);
	thread_put(thread);
}

static int run(struct tl_sched *sched)
{
	while (!stop_asked(sched)) {
		enum reason reason = flush_reason(sched);
		int result;

		if (reason == REASON_NONE) {
			thread_run(sched);
			continue;
		}
		/* One of the threads has forked, and this is the child. */
		if (!sched->batch->requests)
			return -EPERM;
		if (!sched->threads.ready && !sched->events.n && !tl_batch_queued(sched->batch))
			return 0;
		result = flush(sched, reason);
		if (result < 0)
			return result;
	}
	return 0;
}

int tl_sched_run(struct tl_sched *sched)
{
	int result;

	if (!sched->batch->requests)
		return -EPERM;
	if (sched->running)
		return -EDEADLK;
	sched->running = true;
	result = run(sched);
	sched->running = false;
	__atomic_store_n(&sched->stop, false, __ATOMIC_RELAXED);
	return result;
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
	result = tl_batch_get_stats(sched->batch, &counts);
	if (result < 0)
		return result;
	own.crossings = counts.crossings;
	own.size = size < sizeof(own) ? size : sizeof(own);
	memcpy(out, &own, own.size);
	return 0;
}
