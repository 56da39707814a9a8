/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * The order in which a batch with TL_UNORDERED makes its requests. It owns the search for the
 * requests that wait, the barriers between them and the sorting. batch.c owns the requests and
 * executes them in this order.
 *
 * Concurrency: as of the batch. One thread at a time uses an order.
 */
#ifndef TRAPLESS_LIB_ORDER_H
#define TRAPLESS_LIB_ORDER_H

#include <trapless.h>

/*
 * A word that stands for a request when requests are sorted: call number (16 bits), first argument
 * (32 bits), slot (16 bits). Larger numbers and arguments are only grouped less well. No two words
 * are equal. Requests with the same call and argument are sorted by their slots, so every algorithm
 * that sorts these words is stable.
 */
#define ORDER_SLOT(word) ((unsigned int)((word) & 0xffff))
/* Reverses the order of calls and arguments, but not the order of requests that share both. */
#define ORDER_REVERSED (~(uint64_t)0xffff)

struct order {
	uint64_t *words;	/* of the requests that wait, in the order of their execution */
	uint64_t *spare;	/* room for the same number of words while they are sorted */
	uint16_t *barriers;	/* rising slots; requests below one are made first */
	uint32_t barriers_n;
	uint64_t direction;	/* ORDER_REVERSED if the next sorting is a falling one, else 0 */
	uint32_t in_flight;	/* the number of copies, from words[0] on, that may be executed */
};

/* Returns the bytes of an order for `entries` slots. */
size_t tl_order_bytes(unsigned int entries);
/* Makes an order in that memory, which must be all zeros. */
struct order *tl_order_make(void *memory, unsigned int entries);

/* Puts a barrier between slot - 1 and slot. */
void tl_order_barrier(struct order *order, unsigned int slot);

/*
 * Finds the requests below slot `next` that wait, and sorts them block by block: rising and falling
 * in turn, so that each begins where the last one ended. Blocks that rise already stay as they are.
 * Returns their number. *moved tells whether a request is to be made before an older one.
 */
unsigned int tl_order_find(struct order *order, const struct tl_request *requests,
			   unsigned int next, bool *moved);

#endif /* TRAPLESS_LIB_ORDER_H */
