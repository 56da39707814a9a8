// SPDX-License-Identifier: GPL-2.0-only
/*
 * Makes a request while something is pending on the thread: scheduling, signals, closed files that
 * wait to be released, seccomp, tracers. This file owns the order in which these are served.
 * request.h owns the path without any of it; restart.c owns what becomes of an interrupted call.
 */
#include <linux/file.h>
#include <linux/kernel.h>
#include <linux/sched/signal.h>
#include <linux/tracepoint.h>

#include "compat/symbols.h"
#include "compat/task.h"
#include "compat/tracepoints.h"
#include "ring/request.h"

/* Drops what the context holds when its thread ends inside a filter's verdict. */
static void cleanup_run(struct callback_head *work)
{
	struct tlk_context *context = container_of(work, struct tlk_context, cleanup);

	context->abandon(context);
	if (context->fd_counted)
		fput(context->file);
	/* A tail call: once the file is dropped, nothing may keep the module loaded. */
	fput(context->file);
}

/*
 * A filter may end the thread (SECCOMP_RET_KILL_THREAD, strict mode): do_exit() abandons the stack
 * below, and with it the references that the context would have put. The cleanup is queued here,
 * where the thread certainly ends. Work that is queued before the verdict may be run too early: by
 * the stop for a tracer that has just attached, and by the end of io_uring's requests. Only a
 * thread in the middle of a verdict has such a mark; its stack stays until it is gone.
 */
static void on_exit(void *data, struct task_struct *task TLK_EXIT_ARGUMENTS)
{
	struct pt_regs *regs = current_pt_regs();
	struct tlk_context *context = (void *)regs - *tlk_mark_of(regs);

	if (tlk_is_of_kernel(current) || *tlk_mark_of(regs) <= TLK_INSIDE)
		return;
	init_task_work(&context->cleanup, cleanup_run);
	tlk_task_work_add(&context->cleanup);
}

static const struct tlk_handler exit_handler = TLK_HANDLER(sched_process_exit, on_exit);

int __init tlk_request_init(void)
{
	return tlk_handler_add(&exit_handler, NULL);
}

void tlk_request_exit(void)
{
	tlk_handler_remove(&exit_handler, NULL);
	tracepoint_synchronize_unregister();
}

u32 tlk_context_why_stopped(const struct tlk_context *context)
{
	if (context->ending == TLK_BUSY)
		return TL_STOPPED_BUSY;
	return tlk_handler_is_due() ? TL_STOPPED_SIGNAL : TL_STOPPED_PAUSE;
}

void tlk_context_undo(struct tlk_context *context)
{
	if (context->undo & TLK_UNDO_RESUME)
		tlk_resume_restore();
	if (context->undo & TLK_UNDO_COMPAT)
		tlk_compat_restore();
}

/* Does what a return to user mode does between two plain calls, except delivering signals. */
void tlk_exit_work_serve(struct tlk_context *context)
{
	unsigned long work = tlk_exit_work();

	if (work & TLK_EXIT_RESCHED)
		schedule();
	if (work & TLK_EXIT_RESUME) {
		context->undo |= TLK_UNDO_RESUME;
		tlk_resume_clear();
	}
	/*
	 * Files that the last request closed are released here. Otherwise a pipe's reader in the
	 * same batch would wait for ever for the end of file.
	 */
	tlk_task_work_serve();
	if (work & TLK_EXIT_RESUME)
		tlk_requested_key_forget();
}

/* Makes the call in the frame if the filter, which may change it, allows it. */
static long make_filtered(struct tlk_context *context)
{
	struct pt_regs *regs = current_pt_regs();
	bool allowed;
	long result;

	tlk_verdict_begin(regs);
	*tlk_mark_of(regs) = (void *)regs - (void *)context;
	allowed = tlk_secure_computing() == 0;
	*tlk_mark_of(regs) = TLK_INSIDE;
	result = tlk_verdict_end(regs, allowed);
	return allowed ? tlk_request_call(regs, context->calls) : result;
}

/*
 * A compound call of a thread with a filter is not made: the plain calls that stand for it are to
 * be asked about. A worker leaves that to the requester, as where the call is unknown.
 */
static noinline long refuse_filtered(struct tlk_context *context)
{
	if (context->calls == &tlk_batch_calls)
		return -EBUSY;
	context->ending = TLK_DONE;
	return tlk_dispatch_refuse(current_pt_regs());
}

/*
 * No request follows a signal, not even one that comes while work is served: the work may take any
 * time, because the thread gives its CPU away, and it may itself send a signal.
 */
bool tlk_request_may_follow(struct tlk_context *context, bool first)
{
	if (first || !tlk_must_return()) {
		tlk_exit_work_serve(context);
		if (first || !tlk_must_return())
			return true;
	}
	context->ending = TLK_SIGNAL;
	return false;
}

long tlk_request_make_slow(struct tlk_context *context, const struct tl_request *request,
			   bool first)
{
	if (tlk_exit_work()) {
		if (!tlk_request_may_follow(context, first))
			return -EINTR;
		tlk_request_copy(request, current_pt_regs());
	}
	return tlk_request_make_prepared(context, first);
}

long tlk_request_make_prepared(struct tlk_context *context, bool first)
{
	struct pt_regs *regs = current_pt_regs();
	unsigned long work;

	if (!tlk_request_may_follow(context, first))
		return -EINTR;

	work = tlk_entry_work();
	context->ending = TLK_BUSY;
	if (work & ~TLK_ENTRY_SECCOMP ||
	    (work && (READ_ONCE(current->ptrace) || tlk_context_may_lose_file(context))))
		return -EBUSY;
	if (work && tlk_dispatch_is_compound(regs))
		return refuse_filtered(context);

	context->ending = TLK_DONE;
	if (work)
		return make_filtered(context);
	return tlk_request_call(regs, context->calls);
}
