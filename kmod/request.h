/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Making one request's system call: copy it once, look it up, call it. Owns the fast path (here)
 * and what happens when anything is pending (request.c); knows neither batches nor workers.
 *
 * A request is made on the thread's own register frame, where its number and arguments stand as
 * if it had trapped. So seccomp, handlers, /proc/PID/syscall, perf and BPF see the real call and
 * not the door. The door's own values come back before the thread returns to user mode.
 */
#ifndef TLK_REQUEST_H
#define TLK_REQUEST_H

#include <linux/errno.h>
#include <linux/fs.h>
#include <linux/sched.h>
#include <linux/task_work.h>
#include <linux/trapless.h>

#include "compat/entry.h"
#include "policy.h"

/*
 * Stands in regs->ax while a thread is inside a door: whatever else enters a door then is nested.
 * The kernel's entry code writes -ENOSYS there for every system call, so user space cannot forge
 * it; it exists once a thread, without allocation, exactly as long as the system call; and nothing
 * reads it meanwhile. It is what a nested door answers.
 */
#define TLK_INSIDE ((unsigned long)-EDEADLK)

/* How an attempt at a request ended. */
enum tlk_ending {
	TLK_DONE,	/* the result is valid */
	TLK_SIGNAL,	/* not made: a signal is pending */
	TLK_BUSY,	/* not made: the thread is traced, audited or dispatched */
};

/* One stay of one thread inside a door. Lives on its stack; nobody else sees it. */
struct tlk_stay {
	struct pt_regs *regs;		/* the thread's register frame */
	struct file *file;		/* held: a request may close every other reference */
	const struct tlk_dispatch *calls;
	unsigned int refused;		/* requests answered without a call */
	u32 compat;
	bool guarded;			/* guard is queued */
	bool fd_counted;		/* the caller of the door holds a reference of its own */
	struct callback_head guard;	/* puts things right if the thread ends inside */
	void (*abandon)(struct tlk_stay *stay);	/* ... and what is the stay's owner's to do */
	unsigned long saved[7];		/* the door's own registers */
};

static __always_inline bool tlk_stay_nested(void)
{
	return current_pt_regs()->ax == TLK_INSIDE;
}

static __always_inline void tlk_stay_begin(struct tlk_stay *stay, struct file *file,
					   const struct tlk_dispatch *calls)
{
	struct pt_regs *regs = current_pt_regs();

	stay->regs = regs;
	stay->file = get_file(file);
	stay->calls = calls;
	stay->refused = 0;
	stay->guarded = false;
	stay->abandon = NULL;
	stay->compat = tlk_compat_clear();
	stay->saved[0] = regs->di;
	stay->saved[1] = regs->si;
	stay->saved[2] = regs->dx;
	stay->saved[3] = regs->r10;
	stay->saved[4] = regs->r8;
	stay->saved[5] = regs->r9;
	stay->saved[6] = regs->orig_ax;
	regs->ax = TLK_INSIDE;
}

void tlk_stay_unguard(struct tlk_stay *stay);

/* The file may be gone after this, and with it the ring. */
static __always_inline void tlk_stay_end(struct tlk_stay *stay)
{
	struct pt_regs *regs = stay->regs;

	if (unlikely(stay->guarded))
		tlk_stay_unguard(stay);
	regs->di = stay->saved[0];
	regs->si = stay->saved[1];
	regs->dx = stay->saved[2];
	regs->r10 = stay->saved[3];
	regs->r8 = stay->saved[4];
	regs->r9 = stay->saved[5];
	regs->orig_ax = stay->saved[6];
	regs->ax = -ENOSYS;
	tlk_compat_restore(stay->compat);
	fput(stay->file);
}

/* Copies a request into the frame, each field once: user space may be rewriting it. */
static __always_inline void tlk_request_copy(const struct tl_request *request,
					     struct pt_regs *regs)
{
	regs->orig_ax = READ_ONCE(request->nr);
	regs->di = READ_ONCE(request->args[0]);
	regs->si = READ_ONCE(request->args[1]);
	regs->dx = READ_ONCE(request->args[2]);
	regs->r10 = READ_ONCE(request->args[3]);
	regs->r8 = READ_ONCE(request->args[4]);
	regs->r9 = READ_ONCE(request->args[5]);
}

/* The call whose number and arguments are in the frame. */
static __always_inline long tlk_request_call(struct tlk_stay *stay,
					     const struct tlk_dispatch *calls)
{
	struct pt_regs *regs = stay->regs;
	sys_call_ptr_t handler = tlk_policy_handler(calls, regs->orig_ax);

	if (unlikely(!handler)) {
		stay->refused++;
		return tlk_policy_refusal(regs->orig_ax);
	}
	return handler(regs);
}

/* Scheduling and finishing closed files, when these are pending. */
void tlk_exit_work_serve(void);

/*
 * Serves what is pending (scheduling, finishing closed files), asks seccomp, then makes the call.
 * first: nothing was made yet during this stay, so a pending signal must not stop it.
 */
enum tlk_ending tlk_request_make_slow(struct tlk_stay *stay, bool first, long *result);

/* May the kernel restart a call that returned this? All five codes are neighbours. */
static __always_inline bool tlk_result_is_restart(long result)
{
	return unlikely((unsigned long)(result + ERESTART_RESTARTBLOCK) <=
			ERESTART_RESTARTBLOCK - ERESTARTSYS);
}

/* After a signal handler, is it the kernel that makes the call again, or does it say -EINTR? */
static inline bool tlk_result_is_redone(long result)
{
	return result == -ERESTARTSYS || result == -ERESTARTNOINTR;
}

static __always_inline void tlk_request_complete(struct tl_request *request, long result)
{
	WRITE_ONCE(request->result, result);
	/* Pairs with the acquire of whoever waits for TL_DONE in user space. */
	smp_store_release(&request->state, TL_DONE);
}

#endif /* TLK_REQUEST_H */
