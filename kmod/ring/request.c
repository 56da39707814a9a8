// SPDX-License-Identifier: GPL-2.0-only
/*
 * A request when something is pending on the thread: scheduling, signals, closed files that wait
 * to be finished, seccomp, tracers. Owns the order in which these are served; the path without
 * any of it is in request.h.
 */
#include <linux/file.h>
#include <linux/kernel.h>
#include <linux/sched/signal.h>

#include "compat/symbols.h"
#include "ring/request.h"

/*
 * Above the bits that hold the number (syscall_get_nr() reads an int). A filter that answers TRAP
 * rolls the call back by copying orig_ax to ax: with this bit in it, it equals no result.
 */
#define ROLLED_BACK BIT_ULL(62)

/*
 * Runs when the thread ends inside a filter's verdict (SECCOMP_RET_KILL_THREAD, strict mode):
 * do_exit() abandons the stack below, and with it the references that were to be put there. It
 * also runs, harmlessly, when work of the task is run between requests.
 */
static void guard_run(struct callback_head *work)
{
	struct tlk_stay *stay = container_of(work, struct tlk_stay, guard);

	stay->debts &= ~TLK_OWES_GUARD;
	if (!(current->flags & PF_EXITING))
		return;
	if (stay->abandon)
		stay->abandon(stay);
	fput(stay->file);
	if (stay->fd_counted)
		fput(stay->file);
}

static void guard_queue(struct tlk_stay *stay)
{
	if (stay->debts & TLK_OWES_GUARD)
		return;
	init_task_work(&stay->guard, guard_run);
	if (!tlk_task_work_add(&stay->guard))
		stay->debts |= TLK_OWES_GUARD;
}

void tlk_stay_pay(struct tlk_stay *stay)
{
	if (stay->debts & TLK_OWES_GUARD)
		tlk_task_work_cancel(guard_run);
	if (stay->debts & TLK_OWES_RESUME)
		tlk_resume_restore();
	if (stay->debts & TLK_OWES_COMPAT)
		tlk_compat_restore();
}

/* What a return to user mode would do between two plain calls, short of delivering signals. */
void tlk_exit_work_serve(struct tlk_stay *stay)
{
	unsigned long work = tlk_exit_work();

	if (work & TLK_EXIT_RESCHED)
		schedule();
	if (work & TLK_EXIT_RESUME) {
		stay->debts |= TLK_OWES_RESUME;
		tlk_resume_clear();
	}
	/*
	 * Files that the last request closed are released here. Without it a pipe's reader in the
	 * same batch would wait for ever for the end of file.
	 */
	if (task_work_pending(current))
		tlk_task_work_run();
}

/* Makes the call in the frame if the filter, which may change it, allows it. */
static long make_filtered(struct tlk_stay *stay)
{
	struct pt_regs *regs = current_pt_regs();
	bool allowed;
	long result;

	guard_queue(stay);
	regs->orig_ax |= ROLLED_BACK;
	regs->ax = -ENOSYS;
	allowed = tlk_secure_computing() == 0;
	result = regs->ax == regs->orig_ax ? -ENOSYS : regs->ax;
	regs->orig_ax = (u32)regs->orig_ax;
	regs->ax = TLK_INSIDE;
	return allowed ? tlk_request_call(regs, stay->calls) : result;
}

long tlk_request_make_slow(struct tlk_stay *stay, bool first)
{
	unsigned long work;

	stay->ending = TLK_SIGNAL;
	if (signal_pending(current) && !first)
		return -EINTR;
	tlk_exit_work_serve(stay);

	work = tlk_entry_work();
	stay->ending = TLK_BUSY;
	if (work & ~TLK_ENTRY_SECCOMP || (work && current->ptrace))
		return -EBUSY;

	stay->ending = TLK_DONE;
	if (work)
		return make_filtered(stay);
	return tlk_request_call(current_pt_regs(), stay->calls);
}

/*
 * At the return to user mode a plain call meets a signal handler. ERESTARTSYS and ERESTARTNOINTR
 * may then be made again; the others end in -EINTR, and do so here at once.
 */
long tlk_request_settle(struct tlk_stay *stay, long result)
{
	switch (result) {
	case TLK_REFUSED:
		stay->refused++;
		return tlk_policy_refusal(current_pt_regs()->orig_ax);
	case -ERESTARTSYS:
	case -ERESTARTNOINTR:
		stay->ending = TLK_AGAIN;
		return result;
	case -ERESTARTNOHAND:
	case -ERESTART_RESTARTBLOCK:
		return -EINTR;
	default:
		return result;
	}
}
