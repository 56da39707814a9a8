/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The orders in which the evaluation function is run in user space and in the kernel: as the
 * paper's Fig. 3 (a call by a trap each) and Fig. 4 (N calls wrapped), and by the two other
 * mechanisms. Owns the arrays and what has to be open; neither measures nor prints.
 */
#ifndef EVAL_ORDERS_H
#define EVAL_ORDERS_H

#include <stdbool.h>
#include <stdint.h>
#include <trapless.h>

#include "raw_ring.h"

enum call_order {
	CONVENTIONAL,	/* user function, call; user function, call; ... (Fig. 3) */
	BATCHED,	/* N times the user function and a request, then one crossing (Fig. 4) */
	WORKERS,	/* the same, made by a worker thread while the requester waits for all */
	SUPERVISOR,	/* as conventional, in supervisor mode: no trap */
	ORDERS
};

enum trap { FAST, INT, TRAPS };	/* syscall, int $0x80 */

/* Widths and stride in bytes. */
struct pair {
	unsigned long user, kernel, stride;
	unsigned int iterations, n;	/* F and N */
};

struct bench {
	const unsigned char *array;	/* of the user's side, from a page's begin on */
	struct raw_ring raw;
	struct tl_psc *psc;
	int file;			/* of the kernel's side */
	int module;			/* for switches of mode */
};

const char *order_name(enum call_order order);
const char *trap_name(enum trap trap);
/* Whether an order can be had by a trap: workers and supervisor mode only as the product is. */
bool order_has_trap(enum call_order order, enum trap trap);

/*
 * Opens what the orders in the list need, for N up to n and widths up to `bytes`; ends the program
 * where something is lacking, and says what.
 */
void bench_open(struct bench *bench, const char *orders, enum trap trap, unsigned long bytes,
		unsigned int n);
void bench_close(struct bench *bench);

/* The mode that the order is run in; back to user mode for all others. */
void order_enter(struct bench *bench, enum call_order order);
void order_leave(struct bench *bench, enum call_order order);

/* F times both functions. 0 when every sum and count was right. */
unsigned long order_run(struct bench *bench, enum call_order order, enum trap trap,
			const struct pair *pair);

/* Kernel-side count of requests executed, of the orders that have one; else 0. */
uint64_t order_executed(struct bench *bench, enum call_order order);

#endif /* EVAL_ORDERS_H */
