// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * batch.c - wrapped calls: a ring of requests and the one crossing that executes them. It owns when
 * a request counts as complete; queueing is inline in trapless.h, threads are sched.c's.
 *
 * What a flush has done is read from the states in the ring, never from the door's return value
 * alone: a signal handler that emulates a call (SIGSYS) may have rewritten that.
 *
 * Where the order is free (TL_UNORDERED) the ring has twice as many places as the caller has slots.
 * Requests that already stand in the order in which they are to be made are executed in place; else
 * they are copied to the places behind the slots in that order, executed there, and their results
 * copied back. So a slot is always its call's, and a handler may leave a flush at any point.
 */
#include "internal.h"
#include "door.h"
#include "order.h"

#include <errno.h>

struct batch {
	struct tl_batch shown;		/* what callers and inline functions see */
	int fd;
	enum tl_backend backend;
	bool straight;			/* in strict order, by the module: nothing else to ask */
	struct order *order;		/* NULL: strict */
	struct tl_stats counts;		/* of the calls made here, not in the module */
	struct tl_request plain[] __attribute__((aligned(64)));	/* the ring without the module */
};

/* Programs have the inline functions compiled in. */
_Static_assert(sizeof(struct tl_batch) == 32 && offsetof(struct tl_batch, requests) == 0 &&
	       offsetof(struct tl_batch, first) == 8 && offsetof(struct tl_batch, next) == 16 &&
	       offsetof(struct tl_batch, end) == 24, "the layout is part of the binary interface");

static struct batch *inner(struct tl_batch *batch)
{
	return (struct batch *)(void *)batch;
}

/* Everything queued is complete: the next call takes slot 0, whose cache line is warm. */
static void rewind_slots(struct tl_batch *shown)
{
	shown->first = shown->requests;
	shown->next = shown->requests;
}

int tl_batch_create(struct tl_batch **out, unsigned int entries, unsigned int flags)
{
	unsigned int unordered = flags & TL_UNORDERED, places = unordered ? 2 * entries : entries;
	struct tl_setup setup = { .size = sizeof(setup), .entries = places };
	size_t bytes = sizeof(struct batch) + TL_RING_REQUESTS_BYTES((size_t)places);
	struct batch *batch;
	void *object;
	int result;

	if (!entries || entries & (entries - 1) ||
	    entries > (unordered ? TL_UNORDERED_ENTRIES_MAX : TL_ENTRIES_MAX))
		return -EINVAL;
	result = tl_object_create(&object, bytes + (unordered ? tl_order_bytes(entries) : 0));
	if (result)
		return result;
	batch = object;
	result = tl_backend_open(&batch->backend, tl_object_kept(object), &setup,
				 flags ^ unordered);
	if (result) {
		tl_object_destroy(object, true);
		return result;
	}
	batch->fd = tl_object_kept(object)->fd;
	batch->shown.requests = batch->plain;
	if (batch->backend == TL_BACKEND_MODULE)
		batch->shown.requests = tl_object_kept(object)->ring;
	if (unordered)
		batch->order = tl_order_make((char *)object + bytes, entries);
	batch->straight = batch->backend == TL_BACKEND_MODULE && !unordered;
	batch->shown.end = batch->shown.requests + entries;
	rewind_slots(&batch->shown);
	*out = &batch->shown;
	return 0;
}

void tl_batch_destroy(struct tl_batch *batch)
{
	if (batch)
		tl_object_destroy(batch, batch->requests != NULL);
}

enum tl_backend tl_batch_backend(const struct tl_batch *batch)
{
	return ((const struct batch *)(const void *)batch)->backend;
}

static bool done(const struct tl_request *request)
{
	/* Pairs with the executor's release: a result is read after this. */
	return __atomic_load_n(&request->state, __ATOMIC_ACQUIRE) == TL_DONE;
}

/* n more are complete: the oldest, where the order is strict. */
static int completed(struct tl_batch *shown, int n)
{
	if (shown->next - shown->first == n)
		rewind_slots(shown);
	else
		shown->first += n;
	return n;
}

/* One by one and in order. A call that a handler interrupted ends the run, as it ends a batch. */
static int make_plain(struct batch *batch, struct tl_request *from, struct tl_request *to)
{
	struct tl_request *request = from;

	while (request != to) {
		bool made = tl_plain_execute(request, TL_CALL_BATCH);

		tl_plain_complete(request);
		batch->counts.crossings += made;
		batch->counts.executed += made;
		batch->counts.refused += !made;
		if (request++->result == -EINTR) {
			batch->counts.interrupted++;
			break;
		}
	}
	return (int)(request - from);
}

/* The door came back and the last of from..to-1 is not complete. Returns how many are. */
static int make_short(struct batch *batch, struct tl_request *from, struct tl_request *to,
		      long door_result)
{
	struct tl_request *request = from;

	while (request != to && done(request))
		request++;
	if (request == from && door_result == -EINTR) {
		/* The first call was interrupted and its handler wants no restart. */
		request->result = -EINTR;
		tl_plain_complete(request);
		request++;
	}
	if (request != from)
		return (int)(request - from);
	/*
	 * Nothing was executed. Traced or audited (-EBUSY): the tracer shall see every call. A
	 * count without a single complete request is not the module's answer: something between
	 * here and there (a filter that traps lseek and a handler) answered in its place.
	 */
	if (door_result == -EBUSY || door_result >= 0)
		return make_plain(batch, from, to);
	return (int)door_result;
}

/* Executes the requests from..to-1, none of which is complete. Returns how many are then. */
static int make(struct batch *batch, struct tl_request *from, struct tl_request *to)
{
	long result;

	if (batch->backend == TL_BACKEND_PLAIN)
		return make_plain(batch, from, to);
	result = door(batch->fd, TL_BATCH(from - batch->shown.requests, to - from), TL_DOOR_BATCH);
	return done(to - 1) ? (int)(to - from) : make_short(batch, from, to, result);
}

/* ---- In any order -------------------------------------------------------------------------- */

/* What copies that were executed have to say to the slots. May be left and done again. */
static void copies_return(struct batch *batch)
{
	struct tl_request *requests = batch->shown.requests, *copy = batch->shown.end;
	struct order *order = batch->order;

	for (uint32_t i = 0; i < order->in_flight; i++, copy++) {
		struct tl_request *request = &requests[ORDER_SLOT(order->words[i])];

		if (!done(copy))
			continue;
		request->result = copy->result;
		__atomic_store_n(&request->state, TL_DONE, __ATOMIC_RELEASE);
	}
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	order->in_flight = 0;
}

static int make_copies(struct batch *batch, unsigned int n)
{
	struct tl_request *requests = batch->shown.requests, *copies = batch->shown.end;
	struct order *order = batch->order;
	int result;

	for (unsigned int i = 0; i < n; i++)
		copies[i] = requests[ORDER_SLOT(order->words[i])];
	/* A handler that leaves the flush from here on leaves something to return. */
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	order->in_flight = n;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	result = make(batch, copies, copies + n);
	copies_return(batch);
	return result;
}

static int flush_unordered(struct batch *batch)
{
	struct tl_batch *shown = &batch->shown;
	struct order *order = batch->order;
	unsigned int queued = tl_batch_queued(shown), n, first, last;
	int result;
	bool moved;

	copies_return(batch);
	n = tl_order_find(order, shown->requests, (unsigned int)(shown->next - shown->requests),
			  &moved);
	if (n != queued) {
		/* A handler left the flush before by a jump: what was done is not done again. */
		result = (int)(queued - n);
	} else {
		first = ORDER_SLOT(order->words[0]);
		last = ORDER_SLOT(order->words[n - 1]);
		result = moved || last - first != n - 1 ? make_copies(batch, n) :
			 make(batch, shown->requests + first, shown->requests + first + n);
	}
	if (result == (int)queued)
		order->barriers_n = 0;
	return result > 0 ? completed(shown, result) : result;
}

int tl_batch_barrier(struct tl_batch *shown)
{
	struct order *order = inner(shown)->order;

	if (!shown->requests)
		return -EPERM;
	if (order)
		tl_order_barrier(order, (unsigned int)(shown->next - shown->requests));
	return 0;
}

/* ---- Flushing ------------------------------------------------------------------------------ */

static __attribute__((noinline)) int flush_otherwise(struct batch *batch)
{
	struct tl_batch *shown = &batch->shown;

	if (batch->order)
		return flush_unordered(batch);
	return completed(shown, done(shown->first) ?
				make_short(batch, shown->first, shown->next, 0) :
				make_plain(batch, shown->first, shown->next));
}

static __attribute__((noinline)) int flush_short(struct batch *batch, long door_result)
{
	struct tl_batch *shown = &batch->shown;
	int result = make_short(batch, shown->first, shown->next, door_result);

	return result > 0 ? completed(shown, result) : result;
}

int tl_batch_flush(struct tl_batch *shown)
{
	struct batch *batch = inner(shown);
	long first = shown->first - shown->requests;
	long queued = shown->next - shown->first;
	long result;

	if (!queued)
		return shown->requests ? 0 : -EPERM;
	if (!batch->straight)
		return flush_otherwise(batch);
	/* A handler left the flush before by a jump: what was done is not done again. */
	if (done(shown->first))
		return flush_short(batch, 0);
	result = door(batch->fd, TL_BATCH(first, queued), TL_DOOR_BATCH);
	/* In order: when the last is complete, all are. */
	if (!done(shown->next - 1))
		return flush_short(batch, result);
	rewind_slots(shown);
	return (int)queued;
}

int tl_batch_stats(const struct tl_batch *shown, struct tl_stats *stats)
{
	const struct batch *batch = (const struct batch *)(const void *)shown;

	if (!shown->requests)
		return -EPERM;
	if (batch->backend == TL_BACKEND_PLAIN)
		return tl_stats_copy(stats, &batch->counts);
	return tl_stats_module(batch->fd, stats, &batch->counts);
}
