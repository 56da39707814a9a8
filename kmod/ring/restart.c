// SPDX-License-Identifier: GPL-2.0-only
/*
 * Decides what becomes of a call that a signal or task work has interrupted: it is made again here,
 * it ends, or it stops its batch (partial completion), which the kernel then restarts after the
 * handler. batch.c, program.c and worker.c act on the decision.
 */
#include <linux/sched/signal.h>

#include "compat/task.h"
#include "ring/request.h"

/*
 * Makes an interrupted call again, or continues it, as the kernel does where no handler runs.
 * Filters do not see the continuation: they have allowed the call already.
 */
static long make_again(struct tlk_context *context, long result)
{
	struct restart_block *rest = &current->restart_block;

	if (result != -ERESTART_RESTARTBLOCK)
		return tlk_request_make_prepared(context, true);
	tlk_exit_work_serve(context);
	return rest->fn(rest);
}

/*
 * A plain call that is interrupted returns to user mode, where the handler runs. The kernel may
 * then make the call again after ERESTARTSYS and ERESTARTNOINTR; the other codes become -EINTR,
 * here at once. Without a signal the numbers are no codes: the kernel returns them as they are,
 * since some calls and a filter's listener can choose them. If task work has interrupted the call,
 * and no signal, no handler will run.
 *
 * The kernel restarts or ends the first call of a batch by itself, with the batch. Behind that,
 * this ends a call whose handler has no SA_RESTART. The kernel judges by the handler of the signal
 * that it takes first; with several pending this takes the lowest.
 */
long tlk_request_settle(struct tlk_context *context, long result, bool first)
{
	struct pt_regs *regs = current_pt_regs();

	while (!tlk_dispatch_has_refused(regs)) {
		if (!signal_pending(current) || context->ending != TLK_DONE)
			return result;
		switch (result) {
		case -ERESTARTSYS:
		case -ERESTARTNOINTR:
			if (!tlk_must_return())
				break;
			if (!first && result == -ERESTARTSYS && tlk_handler_ends_call())
				return -EINTR;
			context->ending = TLK_AGAIN;
			return result;
		case -ERESTARTNOHAND:
		case -ERESTART_RESTARTBLOCK:
			if (!tlk_must_return())
				break;
			return -EINTR;
		default:
			return result;
		}
		result = make_again(context, result);
	}
	regs->TLK_NR = (u32)regs->TLK_NR;
	context->refused++;
	return tlk_dispatch_refusal(regs->TLK_NR);
}
