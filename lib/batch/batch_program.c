// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * A batch that is a program: its steps pass results on and jump. This file owns where a program of
 * a batch stands and when it is over; program.c owns what a step is without the module.
 */
#include "batch_state.h"
#include "enter.h"

#include <errno.h>

/* Executes a program by the module. Returns 0 at its end, or why it stopped. */
static int enter_program(struct batch *batch, uint32_t end)
{
	struct tl_program *program = batch->program;
	struct tl_request *requests = batch->head.requests;
	long entered;

	do {
		program->stopped = TL_STOPPED_NEVER;
		entered = module_enter(batch->fd, requests, end, TL_ENTER_PROGRAM);
	} while (program->stopped == TL_STOPPED_PAUSE);
	/* `stopped` counts: a handler that emulates a call can rewrite the returned value. */
	if (program->stopped == TL_STOPPED_NEVER && entered == -EINTR && program->at < end) {
		/* A handler without SA_RESTART has interrupted the first call. */
		struct tl_request step = requests[program->at];

		tl_program_complete_step(program, requests, end, &step, -EINTR);
		return program->at < end ? -EINTR : 0;
	}
	if (program->stopped == TL_STOPPED_NEVER && entered != -EBUSY) {
		int error = tl_ring_check(batch->fd, requests);

		if (error || entered < 0)
			return error ? error : (int)entered;
	}
	switch (program->stopped) {
	case TL_STOPPED_END:
		return 0;
	case TL_STOPPED_SIGNAL:
		return -EINTR;
	case TL_STOPPED_STEPS:
		return -ETIME;
	default:
		/* A tracer must see every call, or a handler has answered in the module's place. */
		note_refusal(batch, entered);
		return tl_program_execute(program, requests, end, &batch->counts);
	}
}

/* Calls that were jumped over have a result, too. */
static void cancel_skipped(struct tl_batch *head)
{
	for (struct tl_request *request = head->first; request != head->next; request++) {
		if (done(request))
			continue;
		request->result = -ECANCELED;
		tl_plain_complete(request);
	}
}

int tl_batch_flush_program(struct batch *batch, uint64_t steps)
{
	struct tl_batch *head = &batch->head;
	struct tl_program *program = batch->program;
	uint32_t end = tl_batch_next(head), queued = tl_batch_queued(head);
	int result;

	if (!(head->program & TL_PROGRAM_BEGUN)) {
		/* A handler has left the last flush by a jump: no request is made twice. */
		while (head->first != head->next && done(head->first))
			head->first++;
		program->at = (uint32_t)(head->first - head->requests);
		/* If a handler leaves the flush from here on, the next one goes on there. */
		__atomic_signal_fence(__ATOMIC_SEQ_CST);
		head->program |= TL_PROGRAM_BEGUN;
	}
	program->steps = steps;
	result = batch->backend == TL_BACKEND_PLAIN ?
			 tl_program_execute(program, head->requests, end, &batch->counts) :
			 enter_program(batch, end);
	if (result)
		return result;
	/* If no call was made twice, as many steps as calls mean that no call was jumped over. */
	if (head->program & TL_PROGRAM_LOOPS ||
	    (head->program & TL_PROGRAM_JUMPS && steps - program->steps != queued))
		cancel_skipped(head);
	rewind_slots(head);
	return (int)queued;
}

int tl_batch_jump(struct tl_batch *head, unsigned int slot, enum tl_condition condition,
		  unsigned int target)
{
	struct tl_request *request;

	if (!head->requests)
		return -EPERM;
	if ((int)slot < 0 || (int)target < 0)
		return (int)slot < 0 ? (int)slot : (int)target;
	request = head->requests + slot;
	if (batch_of(head)->order || slot >= tl_batch_next(head) ||
	    target > tl_batch_next(head) || request < head->first)
		return -EINVAL;
	request->nr |= TL_JUMPS;
	request->condition = (uint8_t)condition;
	request->target = (uint16_t)target;
	head->program |= TL_PROGRAM_STEPS | TL_PROGRAM_JUMPS;
	if (target <= slot)
		head->program |= TL_PROGRAM_LOOPS;
	return 0;
}

unsigned int tl_batch_at(const struct tl_batch *head)
{
	const struct batch *batch = (const struct batch *)(const void *)head;

	if (head->program & TL_PROGRAM_BEGUN)
		return batch->program->at;
	return (unsigned int)(head->first - head->requests);
}
