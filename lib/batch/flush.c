// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * A flush: the crossing that executes the queued calls in order, by the module or by plain calls.
 * This file owns the order of a flush, and what is done when the module returns early.
 *
 * A flush reads from the states in the ring which requests are complete, and never from the return
 * value of lseek(2) alone: a signal handler that emulates a call (SIGSYS) may have rewritten that.
 */
#include "batch_state.h"
#include "enter.h"

#include <errno.h>

/* Makes the calls one by one. A call that a handler interrupted ends the run, as in a batch. */
static int execute_plain(struct batch *batch, struct tl_request *from, struct tl_request *to)
{
	struct tl_request *request = from;

	while (request != to) {
		bool made = tl_plain_execute(request, TL_CALL_BATCH);

		tl_plain_complete(request);
		batch->counts.crossings += made;
		batch->counts.executed += made;
		batch->counts.refused += !made;
		if (request++->result == -EINTR) {
			batch->counts.interrupted++;
			break;
		}
	}
	return (int)(request - from);
}

/* The module has returned and the last of from..to-1 is not complete. Returns how many are now. */
static int complete_some(struct batch *batch, struct tl_request *from, struct tl_request *to,
		      long entered)
{
	struct tl_request *request = from;

	while (request != to && done(request))
		request++;
	if (request == from && entered == -EINTR) {
		/* A handler without SA_RESTART has interrupted the first call. */
		request->result = -EINTR;
		tl_plain_complete(request);
		request++;
	}
	if (request != from)
		return (int)(request - from);
	/*
	 * No request was executed. -EBUSY: the thread is traced or audited, and the tracer must
	 * see every call. Any other answer may be that of a file that has the descriptor now. If it
	 * is not, a count without a complete request comes from a filter that traps lseek(2), and
	 * its handler.
	 */
	if (entered != -EBUSY) {
		int error = tl_ring_check(batch->fd, batch->head.requests);

		if (error || entered < 0)
			return error ? error : (int)entered;
	}
	note_refusal(batch, entered);
	return execute_plain(batch, from, to);
}

static long enter(const struct batch *batch, const struct tl_request *from,
		  const struct tl_request *to)
{
	return module_enter_batch(batch->fd, from, (uint64_t)(to - from));
}

/* Did the module stop for a reason that plain calls hide, such as a stop signal? */
static bool may_continue(struct batch *batch)
{
	uint32_t stopped = batch->program->stopped;

	batch->program->stopped = TL_STOPPED_NEVER;
	return stopped == TL_STOPPED_PAUSE || stopped == TL_STOPPED_BUSY;
}

/* The same as complete_some(), and goes on unless a handler has run. */
static int complete_short(struct batch *batch, struct tl_request *from, struct tl_request *to,
			  long entered)
{
	struct tl_request *request = from;

	for (;;) {
		int made = complete_some(batch, request, to, entered);

		if (made > 0)
			request += made;
		if (made <= 0 || request == to || !may_continue(batch))
			return request != from ? (int)(request - from) : made;
		entered = enter(batch, request, to);
	}
}

int tl_batch_execute(struct batch *batch, struct tl_request *from, struct tl_request *to)
{
	long result;

	if (batch->backend == TL_BACKEND_PLAIN)
		return execute_plain(batch, from, to);
	result = enter(batch, from, to);
	return done(to - 1) ? (int)(to - from) : complete_short(batch, from, to, result);
}

static __attribute__((noinline)) int flush_indirect(struct batch *batch)
{
	struct tl_batch *head = &batch->head;

	if (batch->order)
		return tl_batch_flush_unordered(batch);
	if (head->program)
		return tl_batch_flush_program(batch, TL_STEPS_DEFAULT);
	return advance(head, done(head->first) ?
				complete_short(batch, head->first, head->next, 0) :
				execute_plain(batch, head->first, head->next));
}

static __attribute__((noinline)) int flush_short(struct batch *batch, long entered)
{
	struct tl_batch *head = &batch->head;
	int result = complete_short(batch, head->first, head->next, entered);

	return result > 0 ? advance(head, result) : result;
}

int tl_batch_flush_steps(struct tl_batch *head, uint64_t steps)
{
	struct batch *batch = batch_of(head);

	return head->program && !batch->order ? tl_batch_flush_program(batch, steps) :
						tl_batch_flush(head);
}

int tl_batch_flush(struct tl_batch *head)
{
	struct batch *batch = batch_of(head);
	long queued = head->next - head->first;
	long result;

	if (!queued)
		return head->requests ? 0 : -EPERM;
	if (!batch->direct || head->program)
		return flush_indirect(batch);
	/* A handler has left the last flush by a jump: no request is made twice. */
	if (done(head->first))
		return flush_short(batch, 0);
	result = module_enter_batch(batch->fd, head->first, (uint64_t)queued);
	/* The order is strict: when the last request is complete, all are. */
	if (!done(head->next - 1))
		return flush_short(batch, result);
	rewind_slots(head);
	return (int)queued;
}

int tl_batch_flush_all(struct tl_batch *head)
{
	int made, queued = (int)tl_batch_queued(head);

	do
		made = tl_batch_flush(head);
	while (tl_batch_queued(head) && (made >= 0 || made == -EINTR || made == -ETIME));
	return made < 0 ? made : queued;
}
