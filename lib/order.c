// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * order.c - see order.h. Requests that make the same call on the same object come to stand side by
 * side, so that the kernel's code and data for it are still in the caches for the second. Sorting
 * moves words, not requests, and costs next to nothing where they are in order already. What the
 * last flush did at its end is what the next begins with: it goes through the same objects from the
 * other side.
 */
#include "order.h"

#include <string.h>

#define RUN 16u			/* words; beyond that merging moves less than insertion */

size_t tl_order_bytes(unsigned int entries)
{
	/* As many barriers as there are places between, before and behind slots. */
	return sizeof(struct order) + 2 * entries * sizeof(uint64_t) +
	       (entries + 1) * sizeof(uint16_t);
}

struct order *tl_order_make(void *memory, unsigned int entries)
{
	struct order *order = memory;

	order->words = (uint64_t *)(void *)(order + 1);
	order->spare = order->words + entries;
	order->barriers = (uint16_t *)(void *)(order->spare + entries);
	return order;
}

void tl_order_barrier(struct order *order, unsigned int slot)
{
	if (!order->barriers_n || order->barriers[order->barriers_n - 1] != slot)
		order->barriers[order->barriers_n++] = (uint16_t)slot;
}

static void sort_few(uint64_t *words, const uint64_t *end)
{
	for (uint64_t *next = words + 1; next < end; next++) {
		uint64_t word = *next, *to = next;

		for (; to != words && to[-1] > word; to--)
			*to = to[-1];
		*to = word;
	}
}

/* from..middle and middle..end are sorted; what becomes of them begins at `to`. */
static void merge(const uint64_t *from, const uint64_t *middle, const uint64_t *end, uint64_t *to)
{
	const uint64_t *other = middle;

	while (from != middle && other != end) {
		bool first = *from < *other;

		*to++ = first ? *from : *other;
		from += first;
		other += !first;
	}
	while (from != middle)
		*to++ = *from++;
	while (other != end)
		*to++ = *other++;
}

static unsigned int least(unsigned int one, unsigned int other)
{
	return one < other ? one : other;
}

/* Runs by insertion, then pairs of them merged, from one place to the other and back. */
static void sort(uint64_t *words, unsigned int n, uint64_t *spare)
{
	uint64_t *from = words, *to = spare, *done;

	for (unsigned int at = 0; at < n; at += RUN)
		sort_few(words + at, words + least(at + RUN, n));
	for (unsigned int width = RUN; width < n; width *= 2) {
		for (unsigned int at = 0; at < n; at += 2 * width)
			merge(from + at, from + least(at + width, n),
			      from + least(at + 2 * width, n), to + at);
		done = to;
		to = from;
		from = done;
	}
	if (from != words)
		memcpy(words, from, n * sizeof(*words));
}

static uint64_t word_of(const struct tl_request *request, unsigned int slot)
{
	return (uint64_t)request->nr << 48 | (request->args[0] & UINT32_MAX) << 16 | slot;
}

/* The requests of the slots from..to-1 that wait. Returns the end of their words. */
static uint64_t *find(const struct tl_request *requests, unsigned int from, unsigned int to,
		      uint64_t *words, uint64_t turn, bool *rising)
{
	uint64_t last = 0;

	for (unsigned int slot = from; slot < to; slot++) {
		uint64_t word = word_of(&requests[slot], slot);

		if (requests[slot].state != TL_SUBMITTED)
			continue;
		if (word < last)
			*rising = false;
		*words++ = word ^ turn;
		last = word;
	}
	return words;
}

unsigned int tl_order_find(struct order *order, const struct tl_request *requests,
			   unsigned int next, bool *moved)
{
	uint64_t *end = order->words;
	unsigned int from = 0;

	*moved = false;
	for (unsigned int i = 0; from < next; i++) {
		unsigned int to = i < order->barriers_n ? order->barriers[i] : next;
		uint64_t *begin = end;
		bool rising = true;

		end = find(requests, from, to, begin, order->turn, &rising);
		if (!rising) {
			sort(begin, (unsigned int)(end - begin), order->spare);
			*moved = true;
		}
		from = to;
	}
	order->turn = *moved ? order->turn ^ ORDER_TURNED : ORDER_TURNED;
	return (unsigned int)(end - order->words);
}
