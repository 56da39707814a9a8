// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * A batch (wrapped-system-call, Fig. 1 and 4): a ring of requests, from what a program asks for to
 * its end, and what is known of its calls. It makes none of them. Queueing is inline in trapless.h;
 * fine-grained threads are the business of sched.c.
 */
#include "batch_state.h"
#include "order.h"

#include <errno.h>
#include <string.h>

/* Programs have the inline functions compiled in. */
_Static_assert(sizeof(struct tl_batch) == 40 && offsetof(struct tl_batch, requests) == 0 &&
	       offsetof(struct tl_batch, first) == 8 && offsetof(struct tl_batch, next) == 16 &&
	       offsetof(struct tl_batch, end) == 24 &&
	       offsetof(struct tl_batch, program) == 32,
	       "the layout is part of the binary interface");

static void set_up_errors(struct tl_request *requests)
{
	for (int error = 1; error <= (int)TL_SLOT_ERRORS; error++)
		requests[-error].result = -error;
}

int tl_batch_create(struct tl_batch **out, unsigned int entries, unsigned int flags)
{
	unsigned int unordered = flags & TL_UNORDERED, places;
	struct tl_setup setup = { .size = sizeof(setup) };
	struct batch *batch;
	size_t bytes;
	void *object;
	int result;

	entries = tl_entries_rounded(entries,
				     unordered ? TL_UNORDERED_ENTRIES_MAX : TL_ENTRIES_MAX);
	if (!entries)
		return -EINVAL;
	places = setup.entries = unordered ? 2 * entries : entries;
	bytes = sizeof(struct batch) + TL_RING_REQUESTS_BYTES((size_t)places);
	result = tl_object_create(&object, bytes + (unordered ? tl_order_bytes(entries) : 0));
	if (result)
		return result;
	batch = object;
	result = tl_backend_open(&batch->backend, tl_header_of(object), &setup,
				 flags ^ unordered);
	if (result) {
		tl_object_destroy(object, true);
		return result;
	}
	batch->fd = tl_header_of(object)->fd;
	batch->head.requests = batch->plain;
	batch->program = &batch->own;
	if (batch->backend == TL_BACKEND_MODULE) {
		batch->head.requests = tl_header_of(object)->ring;
		batch->program = (void *)(batch->head.requests + places);
	}
	if (unordered)
		batch->order = tl_order_make((char *)object + bytes, entries);
	batch->direct = batch->backend == TL_BACKEND_MODULE && !unordered;
	batch->head.end = batch->head.requests + entries;
	set_up_errors(batch->head.requests);
	rewind_slots(&batch->head);
	*out = &batch->head;
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

const char *tl_batch_reason(const struct tl_batch *batch)
{
	if (!batch->requests)
		return "this is the child of a fork, and the batch belongs to the parent";
	return tl_header_of((void *)(uintptr_t)batch)->reason;
}

/* The caller's data of each slot; the object's block of heap, made when it is first set. */
int tl_batch_set_data(struct tl_batch *head, unsigned int slot, uint64_t user_data)
{
	size_t slots = (size_t)(head->end - head->requests);
	uint64_t *data;

	if (!head->requests)
		return -EPERM;
	if (slot >= tl_batch_next(head) || head->requests + slot < head->first)
		return -EINVAL;
	data = tl_header_of(head)->heap;
	if (!data) {
		data = tl_heap_resize(NULL, slots, sizeof(*data));
		if (!data)
			return -ENOMEM;
		memset(data, 0, slots * sizeof(*data));
		tl_header_of(head)->heap = data;
	}
	data[slot] = user_data;
	return 0;
}

uint64_t tl_batch_data(const struct tl_batch *head, unsigned int slot)
{
	const uint64_t *data = tl_header_of((void *)(uintptr_t)head)->heap;

	return data && slot < (size_t)(head->end - head->requests) ? data[slot] : 0;
}

int tl_batch_get_stats(const struct tl_batch *head, struct tl_stats *stats)
{
	const struct batch *batch = (const struct batch *)(const void *)head;

	if (!head->requests)
		return -EPERM;
	if (batch->backend == TL_BACKEND_PLAIN)
		return tl_stats_copy(stats, &batch->counts);
	return tl_stats_module(batch->fd, head->requests, stats, &batch->counts);
}
