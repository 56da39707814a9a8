// SPDX-License-Identifier: GPL-2.0-only
/*
 * Executes batches. This file owns the order of requests, and the result of a batch that stops
 * early. request.h owns how one call is made; restart.c, whether one that was interrupted is made
 * again.
 */
#include "ring/batch.h"
#include "ring/enter.h"
#include "ring/request.h"

/* One entry into a batch. It lives on the thread's stack. */
struct batch {
	struct tlk_context context;
	unsigned long first;		/* slot of the first request */
	unsigned long asked;		/* how many requests were submitted */
	const struct tl_request *at;	/* in hand, if it is made off the fast path */
};

/*
 * Makes the requests from..to-1 and returns where it stopped. The loop is what a call costs, so it
 * is kept short: everything unusual is out of line.
 */
static __always_inline struct tl_request *
execute(struct batch *batch, struct pt_regs *regs, struct tl_request *from,
	struct tl_request *to, bool first, bool directly, long *stopped)
{
	struct tlk_context *context = &batch->context;
	struct tl_request *request;
	long result;

	for (request = from; request != to; request++) {
		tlk_request_copy(request, regs);
		if (tlk_work_pending()) {
			batch->at = request;
			result = tlk_request_make_slow(context, request,
						       first && request == from);
			if (context->ending != TLK_DONE)
				goto stop;
		} else {
			result = directly ? tlk_dispatch_call_directly(regs) :
					    tlk_request_call(regs, &tlk_batch_calls);
		}
		if (tlk_result_is_special(result)) {
			batch->at = request;
			result = tlk_request_settle(context, result, first && request == from);
			if (context->ending != TLK_DONE)
				goto stop;
		}
		tlk_request_complete(request, result);
	}
	return request;
stop:
	*stopped = result;
	return request;
}

/* Makes the part of a batch that wraps around the ring's end. Returns how many it made. */
static noinline unsigned int execute_wrapped(struct batch *batch, struct tlk_ring *ring,
					     unsigned int count, bool first, long *stopped)
{
	struct tl_request *from = ring->requests;

	return execute(batch, current_pt_regs(), from, from + count, first, false, stopped) - from;
}

/*
 * Do the first calls repeat after PERIOD requests? Then the comparisons of direct calls are
 * predicted. In a mix without order each request would be mispredicted more than once, and a
 * retpoline is so once. User space may rewrite the numbers: this chooses the faster way, and no
 * handler.
 */
#define PERIOD 4

static __always_inline bool is_regular(const struct tl_request *from, unsigned long count)
{
	unsigned int i;

	if (count < 2 * PERIOD)
		return false;
	for (i = 0; i < PERIOD; i++)
		if (READ_ONCE(from[i].nr) != READ_ONCE(from[i + PERIOD].nr))
			return false;
	return true;
}

/* Counts refused requests and a stop before the last `left` requests, which are unusual. */
static noinline void tell_unusual(struct tlk_ring *ring, const struct tlk_context *context,
				  unsigned int first, unsigned int done, unsigned int left)
{
	struct tlk_ring_counts *counts = &ring->counts;

	atomic64_add(context->refused, &counts->refused);
	if (context->ending == TLK_BUSY)
		atomic64_inc(&counts->bypassed);
	else if (context->ending != TLK_DONE)
		atomic64_inc(&counts->interrupted);
	if (context->ending == TLK_DONE)
		return;
	/* The rest goes back to user space, to be submitted again. */
	atomic64_add(-(long)left, &counts->submitted);
	tlk_counts_note_stop(counts, tlk_context_why_stopped(context),
			     (first + done) & ring->mask);
	if (done)
		WRITE_ONCE(tlk_ring_program(ring)->stopped, tlk_context_why_stopped(context));
}

/*
 * The thread ends inside a filter's verdict about the request in hand. The calls before it were
 * made; it and the rest were not.
 */
static void abandon(struct tlk_context *context)
{
	const struct batch *batch = container_of(context, struct batch, context);
	struct tlk_ring *ring = tlk_ring_of(context->file);
	struct tlk_ring_counts *counts = &ring->counts;
	unsigned long done = (batch->at - ring->requests - batch->first) & ring->mask;

	atomic64_add(done - context->refused, &counts->executed);
	atomic64_add(context->refused, &counts->refused);
	atomic64_add(-(long)(batch->asked - done), &counts->submitted);
	atomic_dec(&counts->inside);
}

/*
 * A batch that its first request stopped returns what that call returned: the kernel then restarts
 * the batch as it would have restarted the call.
 */
long tlk_batch_enter(struct tlk_ring *ring, struct file *file)
{
	struct pt_regs *regs = current_pt_regs();
	unsigned long entries = ring->mask + 1;
	unsigned long first = tlk_enter_slot(ring, regs);
	unsigned long asked = tlk_enter_argument(regs);
	unsigned long straight = min(asked, entries - first);
	/* Speculation stays in the ring even where the check of `first` is mispredicted. */
	struct tl_request *from = &ring->requests[first & ring->mask];
	struct batch batch tlk_uninitialized;
	struct tlk_saved_regs saved;
	unsigned int done;
	long stopped = 0;

	if (unlikely(first >= entries || asked > entries))
		return -EINVAL;
	atomic64_inc(&ring->counts.crossings);
	atomic64_add(asked, &ring->counts.submitted);
	atomic_inc(&ring->counts.inside);
	batch.first = first;
	batch.asked = asked;
	saved = tlk_context_begin(&batch.context, file, regs, &tlk_batch_calls, abandon);
	if (static_branch_unlikely(&tlk_dispatch_is_direct) && is_regular(from, straight))
		done = execute(&batch, regs, from, from + straight, true, true, &stopped) - from;
	else
		done = execute(&batch, regs, from, from + straight, true, false, &stopped) - from;
	if (unlikely(straight != asked && done == straight))
		done += execute_wrapped(&batch, ring, asked - straight, !done, &stopped);

	atomic64_add(done - batch.context.refused, &ring->counts.executed);
	atomic_dec(&ring->counts.inside);
	if (unlikely(done != asked || batch.context.refused))
		tell_unusual(ring, &batch.context, first, done, asked - done);
	tlk_context_end(&batch.context, regs, saved);
	return done ? done : stopped;
}
