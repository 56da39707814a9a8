/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * The structure of a batch, which the files of this folder share: batch.c creates it and tells what
 * is in it, flush.c makes its calls in order, unordered.c in any order, batch_program.c as a
 * program. This header owns when a request is complete, and which slots are free.
 */
#ifndef TL_BATCH_STATE_H
#define TL_BATCH_STATE_H

#include "internal.h"

struct order;

struct batch {
	struct tl_batch head;		/* the part that callers and inline functions see */
	int fd;
	enum tl_backend backend;
	bool direct;			/* in strict order by the module: no other case */
	struct order *order;		/* NULL: strict order */
	struct tl_program *program;	/* where a program is; of the module's ring, or `own` */
	struct tl_program own;
	struct tl_stats counts;		/* of the calls that the library made itself */
	/* The ring without the module, and what stands before slot 0. */
	struct tl_request errors[TL_SLOT_ERRORS] __attribute__((aligned(64)));
	struct tl_request plain[];
};

static inline struct batch *batch_of(struct tl_batch *batch)
{
	return (struct batch *)(void *)batch;
}

/* All queued calls are complete. The next call takes slot 0, whose cache line is warm. */
static inline void rewind_slots(struct tl_batch *head)
{
	head->first = head->requests;
	head->next = head->requests;
	head->program = 0;
}

static inline bool done(const struct tl_request *request)
{
	/* Pairs with the executor's release: the caller reads the result after this. */
	return __atomic_load_n(&request->state, __ATOMIC_ACQUIRE) == TL_DONE;
}

/* n more requests are complete; in a strict order they are the oldest. */
static inline int advance(struct tl_batch *head, int n)
{
	if (head->next - head->first == n)
		rewind_slots(head);
	else
		head->first += n;
	return n;
}

/* The module has refused this thread, and the library makes the calls: notes why. */
static inline void note_refusal(struct batch *batch, long entered)
{
	tl_header_of(batch)->reason =
		entered == -EBUSY ? "a tracer, audit or a filter watches this thread's calls" :
				    "a handler of SIGSYS answers in the module's place";
}

/* flush.c: executes the incomplete requests from..to-1. Returns how many are complete then. */
int tl_batch_execute(struct batch *batch, struct tl_request *from, struct tl_request *to);

/* unordered.c, batch_program.c: return how many requests have become complete, or -errno. */
int tl_batch_flush_unordered(struct batch *batch);
int tl_batch_flush_program(struct batch *batch, uint64_t steps);

#endif /* TL_BATCH_STATE_H */
