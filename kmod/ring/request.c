// SPDX-License-Identifier: GPL-2.0-only
/*
 * Makes a request while something is pending on the thread: scheduling, signals, closed files that
 * wait to be released, seccomp, tracers. This file owns the order in which these are served.
 * request.h owns the path without any of it.
 */
#include <linux/file.h>
#include <linux/kernel.h>
#include <linux/sched/signal.h>

#include "compat/symbols.h"
#include "ring/request.h"

/*
 * This bit is above those that hold the number (syscall_get_nr() reads an int). A filter that
 * answers TRAP rolls the call back by copying orig_ax to ax: with this bit set, ax equals no
 * result.
 */
#define ROLLED_BACK BIT_ULL(62)

/*
 * Runs when the thread ends inside a filter's verdict (SECCOMP_RET_KILL_THREAD, strict mode):
 * do_exit() abandons the stack below, and with it the references that the context would have put.
 * It also runs, without harm, when the task's work is run between requests.
 */
static void cleanup_run(struct callback_head *work)
{
	struct tlk_context *context = container_of(work, struct tlk_context, cleanup);

	context->undo &= ~TLK_UNDO_CLEANUP;
	if (!(current->flags & PF_EXITING))
		return;
	if (context->abandon)
		context->abandon(context);
	fput(context->file);
	if (context->fd_counted)
		fput(context->file);
}

static void cleanup_queue(struct tlk_context *context)
{
	if (context->undo & TLK_UNDO_CLEANUP)
		return;
	init_task_work(&context->cleanup, cleanup_run);
	if (!tlk_task_work_add(&context->cleanup))
		context->undo |= TLK_UNDO_CLEANUP;
}

void tlk_context_undo(struct tlk_context *context)
{
	if (context->undo & TLK_UNDO_CLEANUP)
		tlk_task_work_cancel(cleanup_run);
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
	if (task_work_pending(current))
		tlk_task_work_run();
}

/* Makes the call in the frame if the filter, which may change it, allows it. */
static long make_filtered(struct tlk_context *context)
{
	struct pt_regs *regs = current_pt_regs();
	bool allowed;
	long result;

	cleanup_queue(context);
	regs->orig_ax |= ROLLED_BACK;
	regs->ax = -ENOSYS;
	allowed = tlk_secure_computing() == 0;
	result = regs->ax == regs->orig_ax ? -ENOSYS : regs->ax;
	regs->orig_ax = (u32)regs->orig_ax;
	regs->ax = -ENOSYS;
	return allowed ? tlk_request_call(regs, context->calls) : result;
}

long tlk_request_make_slow(struct tlk_context *context, bool first)
{
	unsigned long work;

	context->ending = TLK_SIGNAL;
	if (signal_pending(current) && !first)
		return -EINTR;
	tlk_exit_work_serve(context);

	work = tlk_entry_work();
	context->ending = TLK_BUSY;
	if (work & ~TLK_ENTRY_SECCOMP ||
	    (work && (current->ptrace || tlk_context_may_lose_file(context))))
		return -EBUSY;

	context->ending = TLK_DONE;
	if (work)
		return make_filtered(context);
	return tlk_request_call(current_pt_regs(), context->calls);
}

/*
 * At the return to user mode a plain call meets a signal handler. The kernel may then make it again
 * after ERESTARTSYS and ERESTARTNOINTR; the other codes end in -EINTR, and do so here at once.
 * Without a signal none of them is a code: the kernel returns the number as it is, which some calls
 * and a filter's listener can choose.
 */
long tlk_request_settle(struct tlk_context *context, long result)
{
	struct pt_regs *regs = current_pt_regs();

	if (tlk_policy_has_refused(regs)) {
		regs->orig_ax = (u32)regs->orig_ax;
		context->refused++;
		return tlk_policy_refusal(regs->orig_ax);
	}
	if (!signal_pending(current))
		return result;
	switch (result) {
	case -ERESTARTSYS:
	case -ERESTARTNOINTR:
		context->ending = TLK_AGAIN;
		return result;
	case -ERESTARTNOHAND:
	case -ERESTART_RESTARTBLOCK:
		return -EINTR;
	default:
		return result;
	}
}
