// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * Sorts the requests of a batch by call and object; see order.h. Requests that make the same call
 * on the same object are made side by side, so that the kernel's code and data for them are still
 * in the caches. Sorting moves words and not requests, and costs little where requests are in order
 * already. Each flush begins with the objects with which the last flush ended.
 *
 * Requests are sorted in blocks, so that a request of a large flush costs no more to sort than one
 * of a block: an object that many requests share is in each block more than once. Blocks rise and
 * fall in turn, and so do flushes.
 */
#include "order.h"

#include <string.h>

#define RUN 16u			/* words; merging moves less than insertion in longer runs */
#define BLOCK 128u		/* slots; sorting more of them together costs more than it gains */

size_t tl_order_bytes(unsigned int entries)
{
	/* A barrier may stand before the first slot, behind the last, and between any two. */
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

/* Merges the sorted words from..middle and middle..end into the words at `to`. */
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

/* Sorts runs by insertion, then merges pairs of runs between the two arrays. */
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

/* Finds the requests of the slots from..to-1 that wait. Returns the end of their words. */
static uint64_t *find(const struct tl_request *requests, unsigned int from, unsigned int to,
		      uint64_t *words, uint64_t direction, bool *rising)
{
	uint64_t last = 0;

	for (unsigned int slot = from; slot < to; slot++) {
		uint64_t word = word_of(&requests[slot], slot);

		if (requests[slot].state != TL_SUBMITTED)
			continue;
		if (word < last)
			*rising = false;
		*words++ = word ^ direction;
		last = word;
	}
	return words;
}

/* The end of the block that begins with slot `from`: the next barrier, if there is one before. */
static unsigned int block_end(const struct order *order, unsigned int *barrier, unsigned int from,
			      unsigned int next)
{
	while (*barrier < order->barriers_n && order->barriers[*barrier] <= from)
		(*barrier)++;
	if (*barrier < order->barriers_n)
		next = least(next, order->barriers[*barrier]);
	return least(next, from + BLOCK);
}

unsigned int tl_order_find(struct order *order, const struct tl_request *requests,
			   unsigned int next, bool *moved)
{
	uint64_t *end = order->words, direction = order->direction;
	unsigned int barrier = 0, to;

	*moved = false;
	for (unsigned int from = 0; from < next; from = to) {
		uint64_t *begin = end;
		bool rising = true;

		to = block_end(order, &barrier, from, next);
		end = find(requests, from, to, begin, direction, &rising);
		if (rising)
			continue;
		sort(begin, (unsigned int)(end - begin), order->spare);
		direction ^= ORDER_REVERSED;
		*moved = true;
	}
	order->direction = *moved ? direction : ORDER_REVERSED;
	return (unsigned int)(end - order->words);
}
