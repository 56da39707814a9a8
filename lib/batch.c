// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * batch.c - wrapped calls: a ring of requests and the one crossing that executes them. It owns when
 * a request counts as complete; queueing is inline in trapless.h, threads are sched.c's.
 *
 * What a flush has done is read from the states in the ring, never from the door's return value
 * alone: a signal handler that emulates a call (SIGSYS) may have rewritten that.
 */
#include "internal.h"
#include "door.h"

#include <errno.h>

struct batch {
	struct tl_batch shown;		/* what callers and inline functions see */
	int fd;
	enum tl_backend backend;
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
	struct tl_setup setup = { .size = sizeof(setup), .entries = entries };
	struct batch *batch;
	void *object;
	int result;

	if (!entries || entries > TL_ENTRIES_MAX || entries & (entries - 1))
		return -EINVAL;
	result = tl_object_create(&object, sizeof(*batch) + TL_RING_REQUESTS_BYTES(entries));
	if (result)
		return result;
	batch = object;
	result = tl_backend_open(&batch->backend, tl_object_kept(object), &setup, flags);
	if (result) {
		tl_object_destroy(object, true);
		return result;
	}
	batch->fd = tl_object_kept(object)->fd;
	batch->shown.requests = batch->plain;
	if (batch->backend == TL_BACKEND_MODULE)
		batch->shown.requests = tl_object_kept(object)->ring;
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

/* The oldest n are complete. */
static int completed(struct tl_batch *shown, int n)
{
	shown->first += n;
	if (shown->first == shown->next)
		rewind_slots(shown);
	return n;
}

/* One by one and in order. A call that a handler interrupted ends the run, as it ends a batch. */
static int flush_plain(struct batch *batch)
{
	struct tl_batch *shown = &batch->shown;
	struct tl_request *request = shown->first;

	while (request != shown->next) {
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
	return completed(shown, (int)(request - shown->first));
}

/* The door came back and the last request is not complete. */
static int flush_short(struct batch *batch, long door_result)
{
	struct tl_batch *shown = &batch->shown;
	struct tl_request *request = shown->first;

	while (request != shown->next && done(request))
		request++;
	if (request == shown->first && door_result == -EINTR) {
		/* The first call was interrupted and its handler wants no restart. */
		request->result = -EINTR;
		tl_plain_complete(request);
		request++;
	}
	if (request != shown->first)
		return completed(shown, (int)(request - shown->first));
	/*
	 * Nothing was executed. Traced or audited (-EBUSY): the tracer shall see every call. A
	 * count without a single complete request is not the module's answer: something between
	 * here and there (a filter that traps lseek and a handler) answered in its place.
	 */
	if (door_result == -EBUSY || door_result >= 0)
		return flush_plain(batch);
	return (int)door_result;
}

int tl_batch_flush(struct tl_batch *shown)
{
	struct batch *batch = inner(shown);
	long first = shown->first - shown->requests;
	long queued = shown->next - shown->first;
	long result;

	if (!queued)
		return shown->requests ? 0 : -EPERM;
	/* A handler left the flush before by a jump: what was done is not done again. */
	if (done(shown->first))
		return flush_short(batch, 0);
	if (batch->backend == TL_BACKEND_PLAIN)
		return flush_plain(batch);
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
