// SPDX-License-Identifier: GPL-2.0-only
/*
 * Runs a worker: it takes a request and makes it, until something makes the worker leave. This file
 * owns when that is, and what becomes of the request in hand. queue.h owns where requests come
 * from, request.h how one call is made, and identity.h on whose behalf.
 */
#include <linux/cred.h>
#include <linux/rcupdate.h>
#include <linux/sched/signal.h>

#include "compat/cred.h"
#include "compat/task.h"
#include "ring/identity.h"
#include "ring/program.h"
#include "ring/queue.h"
#include "ring/request.h"
#include "ring/worker.h"

/* Lives on the worker's stack; nobody else sees it. */
struct worker {
	struct tlk_context context;
	struct tlk_ring *ring;
	struct tlk_queue_worker place;	/* in the ring's queue */
	unsigned int slot;		/* of the request in hand */
	long callless;			/* requests served less calls made: most make one each */
	const struct tlk_worker_program *program;	/* that it makes, or NULL */
	const struct cred *cred;	/* the worker's own when its identity was last compared */
	const void *const *domain;	/* where its domain is, or NULL: see tlk_task_domain() */
};

/*
 * Must must_leave() be asked? Calls that would change a worker's identity are refused to workers,
 * and another thread that gives it a filter (SECCOMP_FILTER_FLAG_TSYNC) leaves seccomp's work
 * pending. But a request may write to a file that stands for its thread, such as
 * /proc/thread-self/attr. And a worker that its control group throttles waits where the kernel
 * makes it wait, on the way to user mode.
 */
static __always_inline bool may_have_to_leave(const struct worker *worker)
{
	return tlk_work_pending() || unlikely(current_cred() != worker->cred) ||
	       (unlikely(worker->context.undo & TLK_UNDO_RESUME) && tlk_is_throttled()) ||
	       (worker->domain &&
		unlikely(READ_ONCE(*worker->domain) != worker->ring->queue->identity.domain));
}

/* 0, or why this worker must leave now. */
static noinline int must_leave(struct worker *worker)
{
	if (tlk_must_return() || tlk_is_throttled())
		return -EINTR;
	if (READ_ONCE(current->ptrace) || (tlk_entry_work() & ~TLK_ENTRY_SECCOMP))
		return -EBUSY;
	if (tlk_entry_work() && tlk_context_may_lose_file(&worker->context))
		return -EBUSY;
	if (!tlk_identity_is_current(&worker->ring->queue->identity))
		return -EPERM;
	worker->cred = current_cred();
	return 0;
}

/*
 * Does the pending work, and then asks the same: the work may be a reason to leave. It is done
 * before a request or a step is read, as it is done before a plain call.
 */
static int must_leave_after_work(struct worker *worker)
{
	tlk_exit_work_serve(&worker->context);
	return must_leave(worker);
}

/* Must the worker stop between two steps of a program? */
static bool must_stop(struct worker *worker)
{
	rcu_tasks_classic_qs(current, false);
	return READ_ONCE(worker->ring->queue->shut) ||
	       (may_have_to_leave(worker) && must_leave_after_work(worker));
}

/*
 * Takes what was refused since the last time out of `calls`, and counts both. Calls are counted
 * before anybody can see that they were made: see struct tlk_queue_worker.
 */
static noinline void count_some_refused(struct worker *worker, long calls)
{
	struct tlk_context *context = &worker->context;

	atomic64_add(context->refused, &worker->ring->counts.refused);
	calls -= context->refused;
	context->refused = 0;
	local_add(calls, &worker->place.executed);
	worker->callless -= calls;
}

/* Completes a request that was made. Returns false if it is to be made again. */
static __always_inline bool is_made(struct tlk_context *context)
{
	/* Files that the request closed are released before its result can be seen. */
	if (unlikely(tlk_exit_work()))
		tlk_exit_work_serve(context);
	if (likely(context->ending == TLK_DONE))
		return true;
	context->ending = TLK_DONE;
	return false;
}

/*
 * Makes the program that the request in hand leads to. If the worker has to stop before its end,
 * the request gets the next step and the steps that are left, for whoever goes on; it counts as
 * begun once any worker has made a step of it.
 */
static noinline bool make_program(struct worker *worker, struct pt_regs *regs)
{
	struct tl_request *request = &worker->ring->requests[worker->slot];
	struct tlk_context *context = &worker->context;
	struct tlk_worker_program program;
	long error = tlk_program_begin(&program, regs);
	u64 budget = program.steps;
	bool begun = worker->place.begun;

	worker->place.begun = false;
	worker->program = &program;
	while (!error && program.at < program.end && program.steps) {
		if (budget != program.steps && must_stop(worker))
			context->ending = TLK_SIGNAL;
		else
			tlk_program_step(&program, context);
		if (context->ending != TLK_DONE)
			break;
	}
	worker->program = NULL;
	/* The refused ones are among them. The request itself is no call. */
	count_some_refused(worker, program.calls);
	if (!is_made(context)) {
		WRITE_ONCE(request->args[2], program.steps);
		WRITE_ONCE(request->args[4], program.at);
		worker->place.begun = begun || program.steps != budget;
		return false;
	}
	worker->callless++;
	if (!error)
		error = program.at < program.end ? -ETIME : program.result;
	tlk_queue_complete(worker->ring, worker->slot, error);
	return true;
}

static __always_inline long make_call(struct tlk_context *context, struct pt_regs *regs)
{
	long result;

	if (tlk_work_pending())
		result = tlk_request_make_prepared(context, false);
	else
		result = tlk_request_call(regs, &tlk_worker_calls);
	if (tlk_result_is_special(result) && context->ending == TLK_DONE)
		result = tlk_request_settle(context, result, true);
	return result;
}

/* Makes the request in hand. Returns false if it is to be made again, or gone on with. */
static __always_inline bool make_request(struct worker *worker, struct pt_regs *regs)
{
	struct tlk_context *context = &worker->context;
	long result;

	tlk_request_copy(&worker->ring->requests[worker->slot], regs);
	if (unlikely(regs->TLK_NR == TL_NR_PROGRAM))
		return make_program(worker, regs);
	result = make_call(context, regs);
	if (unlikely(!is_made(context)))
		return false;
	if (unlikely(context->refused)) {
		count_some_refused(worker, 1);
		worker->callless++;
	} else {
		local_inc(&worker->place.executed);
	}
	tlk_queue_complete(worker->ring, worker->slot, result);
	return true;
}

/* Serves until the worker must leave. Returns the number served or why it stopped. */
static long serve(struct worker *worker, struct pt_regs *regs)
{
	struct tlk_ring *ring = worker->ring;
	int error, slot;

	while (!READ_ONCE(ring->queue->shut)) {
		/* A worker that always has work neither sleeps nor returns. */
		rcu_tasks_classic_qs(current, false);
		if (may_have_to_leave(worker)) {
			error = must_leave_after_work(worker);
			if (error)
				return error;
		}
		slot = tlk_queue_take(ring, &worker->place);
		if (slot < 0) {
			tlk_wake_rest(&worker->place);
			continue;
		}
		tlk_queue_took(&worker->place);
		worker->slot = slot;
		if (unlikely(!make_request(worker, regs)))
			tlk_queue_redo(&worker->place, slot);
	}
	return local_read(&worker->place.executed) + worker->callless;
}

/*
 * The thread ends inside its call, by a filter's verdict: nobody else completes its request. That
 * call was not made, but steps of a program before it were.
 */
static void abandon(struct tlk_context *context)
{
	struct worker *worker = container_of(context, struct worker, context);

	if (worker->program)
		count_some_refused(worker, worker->program->calls);
	tlk_queue_complete(worker->ring, worker->slot, -ENOSYS);
	tlk_queue_leave(&worker->place);
}

static void note_stop(const struct worker *worker, long error)
{
	struct tlk_ring_counts *counts = &worker->ring->counts;
	u32 why = TLK_STOPPED_IDENTITY;

	if (error == -EINTR) {
		atomic64_inc(&counts->interrupted);
		why = tlk_context_why_stopped(&worker->context);
	} else if (error == -EBUSY) {
		atomic64_inc(&counts->bypassed);
		why = TL_STOPPED_BUSY;
	}
	tlk_counts_note_stop(counts, why, worker->slot);
}

long tlk_worker_serve(struct tlk_ring *ring, struct file *file)
{
	struct worker worker = { .ring = ring, .cred = current_cred(),
				 .domain = tlk_task_domain() };
	struct pt_regs *regs = current_pt_regs();
	struct tlk_saved_regs saved;
	long ret;

	atomic64_inc(&ring->counts.crossings);
	ret = tlk_queue_enter(ring->queue, &worker.place);
	if (ret)
		return ret;
	saved = tlk_context_begin(&worker.context, file, regs, &tlk_worker_calls, abandon);
	ret = serve(&worker, regs);
	tlk_queue_leave(&worker.place);
	if (ret < 0)
		note_stop(&worker, ret);
	tlk_context_end(&worker.context, regs, saved);
	return ret;
}
