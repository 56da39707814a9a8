/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Loads of calls in random order, for reorder.c: which calls, on what, with which results. Owns the
 * files, sockets and events that they are made on; makes no call of a load.
 */
#ifndef EVAL_LOADS_H
#define EVAL_LOADS_H

#include <stdbool.h>
#include <stdint.h>
#include <trapless.h>

#define OBJECTS_MAX 64u		/* D */
#define WIDTH_MAX_KB 8192u	/* D * K */
#define BATCH_MAX 512u		/* N */
#define CALLS_MAX (1u << 20)	/* of a region */

struct call {
	uint32_t nr;
	bool after_barrier;	/* whatever came before it in its batch is complete */
	uint64_t args[4];
	int64_t result;		/* that it must have */
};

struct call *calls_new(unsigned int count);

/* Each batch of n as TL_UNORDERED would make it, but queued so by the program itself. */
void calls_sort(struct call *calls, unsigned int count, unsigned int n);

/* The evaluation function over `objects` places of the kernel's array, `width` bytes each. */
void objects_open(unsigned int objects, unsigned long width);
void objects_fill(struct call *calls, unsigned int count, unsigned int objects,
		  unsigned long width);

/*
 * A server's calls: reads and stats of files, sends to sockets, events told and awaited. Behind a
 * barrier at the end of each batch, what was sent is received.
 */
void mix_open(void);
void mix_fill(struct call *calls, unsigned int count, unsigned int n);

#endif /* EVAL_LOADS_H */
