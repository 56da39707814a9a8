// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * sched.c - the scheduler of fine-grained threads (wrapped-system-call, section 2). It owns calls
 * and their continuations, and decides when the batch is flushed: at N calls, when nothing is
 * ready, or when the oldest call is due. What a thread is, is thread.c's business, what an external
 * event is, event.c's, how calls are executed, batch.c's.
 */
#include "sched.h"
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FLUSH_AT_DEFAULT 32u	/* calls; the paper's N */
#define CONFIG_BYTES_FIRST 24u	/* of struct tl_sched_config in the first release */
#define CONFIG_BYTES_MAX 4096u	/* of any release */
#define EVENT_TURNS_MAX 256u	/* threads run between two looks at external events */

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
 * The structure as the program knows it. A release may add fields at its end, where 0 means what
 * was before; so an older program gives fewer and a newer one may give more, as long as they are 0.
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
		/* Twice N: a thread may add a few beyond N before the scheduler looks. */
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
	sched->ready_end = &sched->ready;
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
	tl_threads_free(sched);
	tl_events_free(sched);
	tl_batch_destroy(sched->batch);
	free(sched->calls);
	free(sched);
}

enum tl_backend tl_sched_backend(const struct tl_sched *sched)
{
	return tl_batch_backend(sched->batch);
}

/* ---- Calls ------------------------------------------------------------------------------- */

/* The call in a slot is complete. Inlined twice: strict order does not pay for the other. */
static inline __attribute__((always_inline)) void
call_deliver(struct tl_sched *sched, const struct tl_call_record *call,
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
 * Where the order is free, what is complete is not the oldest. A slot is free again once its call
 * has been delivered, so that no later flush delivers it.
 */
static int flush_unordered(struct tl_sched *sched)
{
	struct tl_request *request = sched->batch->requests, *end = sched->batch->next;
	const struct tl_call_record *call = sched->calls;
	int n = tl_batch_flush(sched->batch);

	for (; n > 0 && request != end; request++, call++) {
		if (__atomic_load_n(&request->state, __ATOMIC_ACQUIRE) != TL_DONE)
			continue;
		request->state = TL_FREE;
		call_deliver(sched, call, request);
	}
	return n;
}

/* One crossing. Returns how many calls it completed; their continuations have been synchronised. */
static int flush_once(struct tl_sched *sched)
{
	const struct tl_request *request = sched->batch->first;
	const struct tl_call_record *call = sched->calls + (request - sched->batch->requests);
	int n;

	if (sched->unordered)
		return flush_unordered(sched);
	n = tl_batch_flush(sched->batch);
	for (int i = 0; i < n; i++)
		call_deliver(sched, &call[i], &request[i]);
	return n;
}

int tl_call(struct tl_sched *sched, struct tl_thread *continuation, int64_t *result, uint32_t nr,
	    uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5)
{
	if (continuation && !continuation->unclaimed)
		return -EINVAL;
	while (sched_queue(sched, continuation, result, nr, a0, a1, a2, a3, a4, a5) < 0) {
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

/* ---- Running ----------------------------------------------------------------------------- */

static bool stop_asked(const struct tl_sched *sched)
{
	return __atomic_load_n(&sched->stop, __ATOMIC_RELAXED);
}

static int flush(struct tl_sched *sched, enum reason reason)
{
	bool idle = !sched->ready && !sched->awaited;
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
	/* A look at the events rides along; it may sleep only if nothing else can become ready. */
	tl_events_poll(sched, idle);
	if (sched->poll_slot >= 0)
		sched->turns = 0;
	while (result >= 0 && tl_batch_queued(sched->batch) && !stop_asked(sched))
		result = flush_once(sched);
	delivered = tl_events_deliver(sched);
	return result < 0 ? result : delivered;
}

static enum reason flush_reason(const struct tl_sched *sched)
{
	uint32_t queued = tl_batch_queued(sched->batch);

	if (queued >= sched->flush_at)
		return REASON_FULL;
	if (!sched->ready)
		return REASON_IDLE;
	if (sched->deadline_ns && queued && now_ns() - sched->oldest_ns >= sched->deadline_ns)
		return REASON_DEADLINE;
	if (sched->events_n && sched->turns >= EVENT_TURNS_MAX)
		return REASON_DEADLINE;
	return REASON_NONE;
}

static void thread_run(struct tl_sched *sched)
{
	struct tl_thread *thread = thread_next(sched);

	sched->turns++;
	sched->stats.threads_run++;
	thread->entry(thread, thread->arg);
	if (thread->event_fd >= 0)
		tl_event_rearm(sched, thread);
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
		if (!sched->ready && !sched->events_n && !tl_batch_queued(sched->batch))
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

int tl_sched_stats(const struct tl_sched *sched, struct tl_sched_stats *out)
{
	struct tl_stats counts = { .size = sizeof(counts) };
	struct tl_sched_stats own = sched->stats;
	uint32_t size = out->size;
	int result;

	if (size < sizeof(out->size))
		return -EINVAL;
	result = tl_batch_stats(sched->batch, &counts);
	if (result < 0)
		return result;
	own.crossings = counts.crossings;
	own.size = size < sizeof(own) ? size : sizeof(own);
	memcpy(out, &own, own.size);
	return 0;
}
