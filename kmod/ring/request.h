/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Makes the system call of one request: copies the request, looks the call up, calls it. This
 * header owns the fast path and the state of a thread that makes requests. request.c owns what
 * happens when anything is pending on the thread. Neither knows batches or workers.
 *
 * A request is made on the thread's own register frame, where its number and arguments stand as if
 * the request had trapped. So seccomp, handlers, /proc/PID/syscall, perf and BPF see the requested
 * call and not the call that entered the module. The registers of the entering call are saved, and
 * restored before the thread returns to user mode.
 */
#ifndef TLK_REQUEST_H
#define TLK_REQUEST_H

#include <linux/build_bug.h>
#include <linux/errno.h>
#include <linux/fdtable.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/task_work.h>
#include <linux/trapless.h>

#include "compat/entry.h"
#include "ring/dispatch.h"

/* The mark of a thread that makes requests and is not inside a filter's verdict; see frame.h. */
#define TLK_INSIDE 1u

/* Watches for the ends of threads: a filter's verdict may end one. Returns 0 or -errno. */
int tlk_request_init(void);
void tlk_request_exit(void);

/* How an attempt at a request ended. */
enum tlk_ending {
	TLK_DONE = 0,	/* the result is final */
	TLK_SIGNAL,	/* not made: a signal is pending */
	TLK_BUSY,	/* not made: a plain call must be, for example because of a tracer */
	TLK_AGAIN,	/* made, and to be made again: the result says how */
};

/*
 * The request context: what one thread needs from its entry into the module to its return. It lives
 * on the thread's stack; nobody else sees it.
 */
struct tlk_context {
	struct file *file;		/* held: a request may close every other reference */
	const struct tlk_dispatch *calls;
	u64 refused;			/* requests answered without a call */
	enum tlk_ending ending;		/* of the last request, if not on the fast path */
	u32 undo;			/* TLK_UNDO_*: what the end of the context has to undo */
	bool fd_counted;		/* the entering system call holds the file, too */
	struct callback_head cleanup;	/* puts what is held if the thread ends inside */
	void (*abandon)(struct tlk_context *context);	/* the owner's part of that cleanup */
};

#define TLK_UNDO_COMPAT BIT(0)	/* the entering call is a 32-bit system call */
#define TLK_UNDO_RESUME BIT(1)	/* TLK_EXIT_RESUME was cleared */

/* The entering call's own values of the registers in which requests are made. */
struct tlk_saved_regs {
	unsigned long arg0, arg1, arg2, arg3, arg4, arg5, nr;
};

static __always_inline bool tlk_context_is_nested(void)
{
	return *tlk_mark_of(current_pt_regs()) == TLK_INSIDE;
}

/*
 * Did fdget() take a reference? As __fget_light() decides, it does unless the table of files is
 * this thread's alone. Before the first request, true is certain: only a request of this thread can
 * make its table shared (io_uring's threads share it). False is not: the table may have lost its
 * other user between fdget() and here. See tlk_context_may_lose_file().
 */
static __always_inline bool tlk_fd_is_counted(void)
{
	return atomic_read(&current->files->count) > 1;
}

static __always_inline struct tlk_saved_regs
tlk_context_begin(struct tlk_context *context, struct file *file, struct pt_regs *regs,
		  const struct tlk_dispatch *calls, void (*abandon)(struct tlk_context *context))
{
	context->file = get_file(file);
	context->calls = calls;
	context->refused = 0;
	context->ending = TLK_DONE;
	context->undo = tlk_compat_clear() ? TLK_UNDO_COMPAT : 0;
	/* Asked now, because a filter may be added while a request sleeps. */
	context->fd_counted = tlk_fd_is_counted();
	context->abandon = abandon;
	*tlk_mark_of(regs) = TLK_INSIDE;
	return (struct tlk_saved_regs){
		.arg0 = regs->TLK_ARG0,
		.arg1 = regs->TLK_ARG1,
		.arg2 = regs->TLK_ARG2,
		.arg3 = regs->TLK_ARG3,
		.arg4 = regs->TLK_ARG4,
		.arg5 = regs->TLK_ARG5,
		.nr = regs->TLK_NR,
	};
}

/*
 * Is it unknown whether the entering call holds the file? If a filter then ended the thread, a
 * reference would be left behind, or one too many dropped. In a process of one thread no filter
 * ends the thread: its verdict is a signal, which is handled after the return.
 */
static inline bool tlk_context_may_lose_file(const struct tlk_context *context)
{
	return !context->fd_counted && !thread_group_empty(current);
}

/* Why a context has stopped before a request, as user space is told: enum tl_stopped. */
u32 tlk_context_why_stopped(const struct tlk_context *context);

void tlk_context_undo(struct tlk_context *context);

/* The file may be gone after this, and with it the ring. */
static __always_inline void tlk_context_end(struct tlk_context *context, struct pt_regs *regs,
					    struct tlk_saved_regs saved)
{
	if (unlikely(context->undo))
		tlk_context_undo(context);
	regs->TLK_ARG0 = saved.arg0;
	regs->TLK_ARG1 = saved.arg1;
	regs->TLK_ARG2 = saved.arg2;
	regs->TLK_ARG3 = saved.arg3;
	regs->TLK_ARG4 = saved.arg4;
	regs->TLK_ARG5 = saved.arg5;
	regs->TLK_NR = saved.nr;
	tlk_frame_settle(regs);
	*tlk_mark_of(regs) = 0;
	fput(context->file);
}

/* Copies a request into the frame, each field once: user space may be rewriting it. */
static __always_inline void tlk_request_copy(const struct tl_request *request,
					     struct pt_regs *regs)
{
	regs->TLK_NR = READ_ONCE(request->nr);
	regs->TLK_ARG0 = READ_ONCE(request->args[0]);
	regs->TLK_ARG1 = READ_ONCE(request->args[1]);
	regs->TLK_ARG2 = READ_ONCE(request->args[2]);
	regs->TLK_ARG3 = READ_ONCE(request->args[3]);
	regs->TLK_ARG4 = READ_ONCE(request->args[4]);
	regs->TLK_ARG5 = READ_ONCE(request->args[5]);
}

/* Makes the call whose number and arguments are in the frame, or gets TLK_REFUSED. */
static __always_inline long tlk_request_call(struct pt_regs *regs,
					     const struct tlk_dispatch *calls)
{
	tlk_frame_settle(regs);
	return tlk_dispatch_handler(calls, regs->TLK_NR)(regs);
}

/* Schedules and releases closed files where that is pending. */
void tlk_exit_work_serve(struct tlk_context *context);

/*
 * The same before a request; false and TLK_SIGNAL if a signal is to be handled, unless the request
 * is the `first`.
 */
bool tlk_request_may_follow(struct tlk_context *context, bool first);

/*
 * Serves what is pending (scheduling, releasing closed files), asks seccomp, then makes the call
 * that is in the frame. `first` says that the context has made no request yet, so that a pending
 * signal must not stop this one. Sets context->ending; the result is valid for TLK_DONE only.
 */
long tlk_request_make_prepared(struct tlk_context *context, bool first);

/*
 * The same for a request that was copied while work was pending. That work may write to the
 * request's memory, as io_uring's does, and a plain call would come after it. So the request is
 * copied again after the work, and the first copy is discarded.
 */
long tlk_request_make_slow(struct tlk_context *context, const struct tl_request *request,
			   bool first);

/*
 * Can this result be a code of restart or TLK_REFUSED? They are the negative numbers next to the
 * last errno. True results beyond (a process group from F_GETOWN, the position that lseek() was
 * given) settle as themselves.
 */
static __always_inline bool tlk_result_is_special(long result)
{
	BUILD_BUG_ON(-TLK_REFUSED < ERESTARTSYS);
	return unlikely(result <= -ERESTARTSYS);
}

/*
 * The final result of a special one; or its code of restart, with context->ending TLK_AGAIN.
 * `first`: it is the first of its batch, or a worker makes it, whose signals are not the
 * requester's.
 */
long tlk_request_settle(struct tlk_context *context, long result, bool first);

static __always_inline void tlk_request_complete(struct tl_request *request, long result)
{
	WRITE_ONCE(request->result, result);
	/* Pairs with the acquire of whoever waits for TL_DONE in user space. */
	smp_store_release(&request->state, TL_DONE);
}

#endif /* TLK_REQUEST_H */
