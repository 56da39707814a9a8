// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * order.c - see order.h. Requests that make the same call on the same object come to stand side by
 * side, so that the kernel's code and data for it are still in the caches for the second. Sorting
 * moves words, not requests, and costs next to nothing where they are in order already.
 */
#include "order.h"

#include <string.h>

#define INSERTION_MAX 12u	/* words; beyond that merging moves less */

size_t tl_order_bytes(unsigned int entries)
{
	/* As many barriers as there are places between, before and behind slots. */
	return sizeof(struct order) + entries * sizeof(uint64_t) +
	       (entries + 1) / 2 * sizeof(uint64_t) + (entries + 1) * sizeof(uint16_t);
}

struct order *tl_order_make(void *memory, unsigned int entries)
{
	struct order *order = memory;

	order->words = (uint64_t *)(void *)(order + 1);
	order->spare = order->words + entries;
	order->barriers = (uint16_t *)(void *)(order->spare + (entries + 1) / 2);
	return order;
}

void tl_order_barrier(struct order *order, unsigned int slot)
{
	if (!order->barriers_n || order->barriers[order->barriers_n - 1] != slot)
		order->barriers[order->barriers_n++] = (uint16_t)slot;
}

static void sort_few(uint64_t *words, unsigned int n)
{
	for (unsigned int i = 1; i < n; i++) {
		uint64_t word = words[i];
		unsigned int to = i;

		for (; to && words[to - 1] > word; to--)
			words[to] = words[to - 1];
		words[to] = word;
	}
}

/* Both halves are sorted; `spare` has room for the first. */
static void merge(uint64_t *words, unsigned int half, unsigned int n, uint64_t *spare)
{
	const uint64_t *a = spare, *a_end = spare + half, *b = words + half, *b_end = words + n;

	memcpy(spare, words, half * sizeof(*words));
	while (a != a_end && b != b_end)
		*words++ = *a < *b ? *a++ : *b++;
	/* What is left of b stands where it belongs. */
	memcpy(words, a, (size_t)(a_end - a) * sizeof(*words));
}

static void sort(uint64_t *words, unsigned int n, uint64_t *spare)
{
	unsigned int half = n / 2;

	if (n <= INSERTION_MAX) {
		sort_few(words, n);
		return;
	}
	sort(words, half, spare);
	sort(words + half, n - half, spare);
	if (words[half - 1] > words[half])
		merge(words, half, n, spare);
}

static uint64_t word_of(const struct tl_request *request, unsigned int slot)
{
	return (uint64_t)request->nr << 48 | (request->args[0] & UINT32_MAX) << 16 | slot;
}

/* The requests of the slots from..to-1 that wait. Returns the end of their words. */
static uint64_t *find(const struct tl_request *requests, unsigned int from, unsigned int to,
		      uint64_t *words, bool *rising)
{
	uint64_t last = 0;

	*rising = true;
	for (unsigned int slot = from; slot < to; slot++) {
		if (requests[slot].state != TL_SUBMITTED)
			continue;
		*words = word_of(&requests[slot], slot);
		*rising &= *words >= last;
		last = *words++;
	}
	return words;
}

unsigned int tl_order_find(struct order *order, const struct tl_request *requests,
			   unsigned int next, bool *moved)
{
	uint64_t *end = order->words;
	unsigned int from = 0;
	bool rising;

	*moved = false;
	for (unsigned int i = 0; from < next; i++) {
		unsigned int to = i < order->barriers_n ? order->barriers[i] : next;
		uint64_t *begin = end;

		end = find(requests, from, to, begin, &rising);
		if (!rising) {
			sort(begin, (unsigned int)(end - begin), order->spare);
			*moved = true;
		}
		from = to;
	}
	return (unsigned int)(end - order->words);
}
