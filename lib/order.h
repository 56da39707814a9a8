/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * order.h - the order in which the requests of a batch are made where the caller left it free:
 * which of them wait, between which barriers, sorted how. Owns no request and executes none; what
 * becomes of the order is batch.c's.
 */
#ifndef TRAPLESS_LIB_ORDER_H
#define TRAPLESS_LIB_ORDER_H

#include <trapless.h>

/*
 * A request as one word that sorts: call number (16 bits), first argument (32), slot (16). Numbers
 * and arguments that are larger merely group worse. No two words are equal, and requests with the
 * same call and argument are sorted by their slots: whatever sorts these words is stable.
 */
#define ORDER_SLOT(word) ((unsigned int)((word) & 0xffff))
/* Turns the order of calls and arguments around, but not that of equal ones. */
#define ORDER_TURNED (~(uint64_t)0xffff)

struct order {
	uint64_t *words;	/* one for each request that waits, in the order to make them */
	uint64_t *spare;	/* room for as many, while they are sorted */
	uint16_t *barriers;	/* rising slots: what is below is made before all others */
	uint32_t barriers_n;
	uint64_t turn;		/* ORDER_TURNED where what is sorted falls this time, else 0 */
	uint32_t in_flight;	/* so many copies, of words[0] and so on, may have been executed */
};

/* Bytes of an order for so many slots, and the order in that memory, which is all zeros. */
size_t tl_order_bytes(unsigned int entries);
struct order *tl_order_make(void *memory, unsigned int entries);

/* A barrier behind `slot` - 1. */
void tl_order_barrier(struct order *order, unsigned int slot);

/*
 * Finds the requests below slot `next` that wait and puts them in order: rising, or as they are
 * where they rise already; the next time falling, to begin where this time ended. Returns how many
 * there are; *moved says whether any of them is to be made before an older one.
 */
unsigned int tl_order_find(struct order *order, const struct tl_request *requests,
			   unsigned int next, bool *moved);

#endif /* TRAPLESS_LIB_ORDER_H */
