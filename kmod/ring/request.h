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

#include <linux/build_bug.h>
#include <linux/errno.h>
#include <linux/fdtable.h>
#include <linux/fs.h>
#include <linux/sched.h>
#include <linux/task_work.h>
#include <linux/trapless.h>

#include "compat/entry.h"
#include "ring/policy.h"

/*
 * Stands in regs->ax while a thread is inside a door: whatever else enters a door then is nested.
 * The kernel's entry code writes -ENOSYS there for every system call, so user space cannot forge
 * it; it exists once a thread, without allocation, exactly as long as the system call; and nothing
 * reads it meanwhile. It is what a nested door answers.
 */
#define TLK_INSIDE ((unsigned long)-EDEADLK)

/* How an attempt at a request ended. */
enum tlk_ending {
	TLK_DONE = 0,	/* the result is final */
	TLK_SIGNAL,	/* not made: a signal is pending */
	TLK_BUSY,	/* not made: the thread is traced, audited or dispatched */
	TLK_AGAIN,	/* made, and to be made again: the result says how */
};

/* One stay of one thread inside a door. Lives on its stack; nobody else sees it. */
struct tlk_stay {
	struct file *file;		/* held: a request may close every other reference */
	const struct tlk_dispatch *calls;
	unsigned int refused;		/* requests answered without a call */
	enum tlk_ending ending;		/* of the last request, if not on the fast path */
	u32 debts;			/* TLK_OWES_*: what the end of the stay has to undo */
	bool fd_counted;		/* the system call below the door holds the file, too */
	struct callback_head guard;	/* puts things right if the thread ends inside */
	void (*abandon)(struct tlk_stay *stay);	/* ... and what is the stay's owner's to do */
};

#define TLK_OWES_COMPAT BIT(0)	/* the door is a 32-bit system call */
#define TLK_OWES_RESUME BIT(1)	/* TLK_EXIT_RESUME was taken down */
#define TLK_OWES_GUARD BIT(2)	/* guard is queued */

/* The door's own values of the registers in which requests are made. */
struct tlk_door {
	unsigned long di, si, dx, r10, r8, r9, orig_ax;
};

static __always_inline bool tlk_stay_nested(void)
{
	return current_pt_regs()->ax == TLK_INSIDE;
}

/*
 * fdget() takes a reference unless the table of files is this thread's alone, as __fget_light()
 * decides. To be asked before the first request: one of them may share the table (io_uring's
 * threads do) and none can undo what fdget() did. If the table lost its other user since, the
 * answer is no, which at worst keeps a file that the thread's end should have released.
 */
static inline bool tlk_fd_is_counted(void)
{
	return atomic_read(&current->files->count) > 1;
}

static __always_inline struct tlk_door tlk_stay_begin(struct tlk_stay *stay, struct file *file,
						      struct pt_regs *regs,
						      const struct tlk_dispatch *calls,
						      void (*abandon)(struct tlk_stay *stay))
{
	stay->file = get_file(file);
	stay->calls = calls;
	stay->refused = 0;
	stay->ending = TLK_DONE;
	stay->debts = tlk_compat_clear() ? TLK_OWES_COMPAT : 0;
	/* Only a filter asks, and one that comes later gets the answer that is at worst a leak. */
	stay->fd_counted = unlikely(tlk_entry_work()) && tlk_fd_is_counted();
	stay->abandon = abandon;
	regs->ax = TLK_INSIDE;
	return (struct tlk_door){
		.di = regs->di,
		.si = regs->si,
		.dx = regs->dx,
		.r10 = regs->r10,
		.r8 = regs->r8,
		.r9 = regs->r9,
		.orig_ax = regs->orig_ax,
	};
}

void tlk_stay_pay(struct tlk_stay *stay);

/* The file may be gone after this, and with it the ring. */
static __always_inline void tlk_stay_end(struct tlk_stay *stay, struct pt_regs *regs,
					 struct tlk_door door)
{
	if (unlikely(stay->debts))
		tlk_stay_pay(stay);
	regs->di = door.di;
	regs->si = door.si;
	regs->dx = door.dx;
	regs->r10 = door.r10;
	regs->r8 = door.r8;
	regs->r9 = door.r9;
	regs->orig_ax = door.orig_ax;
	regs->ax = -ENOSYS;
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

/* Makes the call whose number and arguments are in the frame, or gets TLK_REFUSED. */
static __always_inline long tlk_request_call(struct pt_regs *regs,
					     const struct tlk_dispatch *calls)
{
	return tlk_policy_handler(calls, regs->orig_ax)(regs);
}

/* Scheduling and finishing closed files, when these are pending. */
void tlk_exit_work_serve(struct tlk_stay *stay);

/*
 * Serves what is pending (scheduling, finishing closed files), asks seccomp, then makes the call.
 * first: nothing was made yet during this stay, so a pending signal must not stop it. Sets
 * stay->ending; the result means something for TLK_DONE only.
 */
long tlk_request_make_slow(struct tlk_stay *stay, bool first);

/*
 * Might this be a code of restart or TLK_REFUSED? They are the negative numbers next to the last
 * errno; the rare true results beyond (a process group from F_GETOWN) settle as themselves.
 */
static __always_inline bool tlk_result_is_special(long result)
{
	BUILD_BUG_ON(-TLK_REFUSED < ERESTARTSYS);
	return unlikely(result <= -ERESTARTSYS);
}

/* The final result of a special one; or its code of restart, with stay->ending TLK_AGAIN. */
long tlk_request_settle(struct tlk_stay *stay, long result);

static __always_inline void tlk_request_complete(struct tl_request *request, long result)
{
	WRITE_ONCE(request->result, result);
	/* Pairs with the acquire of whoever waits for TL_DONE in user space. */
	smp_store_release(&request->state, TL_DONE);
}

#endif /* TLK_REQUEST_H */
