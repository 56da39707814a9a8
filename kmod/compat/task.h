/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Declares questions about tasks whose functions in the kernel are not exported or have several
 * names. This header owns the questions;
 * supervisor/ and ring/ own what follows from the answers.
 */
#ifndef TLK_COMPAT_TASK_H
#define TLK_COMPAT_TASK_H

#include <linux/kernel.h>
#include <linux/key.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/task_work.h>
#include <asm/ptrace.h>

#include "compat/symbols.h"

/*
 * Must the current thread return to user mode? For a signal, or for live patching: that interrupts
 * a thread's call until the thread has returned. Others interrupt the call (TWA_SIGNAL, by which
 * io_uring announces completions) for work that can be done anywhere in the kernel. A program sees
 * none of that, though signal_pending() is true.
 */
static inline bool tlk_must_return(void)
{
#ifdef TIF_PATCH_PENDING
	return task_sigpending(current) || unlikely(test_thread_flag(TIF_NOTIFY_SIGNAL) &&
						    test_thread_flag(TIF_PATCH_PENDING));
#else
	return task_sigpending(current);
#endif
}

/*
 * Will a handler run when the current thread returns to user mode? If not, the program does not
 * notice why its thread returns: SIGSTOP, a freezer, live patching. Another signal may come after
 * the answer, as it may before any call.
 */
bool tlk_handler_is_due(void);

/* Will it run without SA_RESTART, so that a call which it has interrupted ends with -EINTR? */
bool tlk_handler_ends_call(void);

/* Does the current thread's task work, which then no longer interrupts its calls. */
static inline void tlk_task_work_serve(void)
{
	/* Its barrier comes before the look for work, and pairs with that in task_work_add(). */
	if (test_thread_flag(TIF_NOTIFY_SIGNAL) && !tlk_must_return())
		clear_notify_signal();
	if (task_work_pending(current))
		tlk_task_work_run();
}

/*
 * Some kernels remember the last key that a thread has found. They give it again for the next
 * request that it fits, even if it is in no keyring any more, and forget it when the thread returns
 * to user mode.
 */
static inline void tlk_requested_key_forget(void)
{
#ifdef CONFIG_KEYS_REQUEST_CACHE
	key_put(current->cached_requested_key);
	current->cached_requested_key = NULL;
#endif
}

/* Finds what the questions below need. Returns 0 or -ENOENT. */
int tlk_task_init(void);

/* May the current task debug that one, by the kernel's rules and its security modules'? */
bool tlk_may_debug(struct task_struct *task);

/* May the current task see that one? It sees its user's tasks and those it may debug (hidepid). */
bool tlk_may_see(struct task_struct *task);

/* Are real, effective and saved IDs the same? A set-user-ID or set-group-ID program's differ. */
bool tlk_is_ordinary(struct task_struct *task);

/* Does the task belong to the machine's root, user 0 in the initial user namespace? */
bool tlk_is_roots(struct task_struct *task);

/*
 * The task's memory map, or NULL. It is freed no earlier than by mmdrop(), so no other has its
 * address until then.
 */
struct mm_struct *tlk_memory_grab(struct task_struct *task);

/*
 * Is this thread, or any other with its memory, traced by a process that lacked one of the
 * capabilities for supervisor mode, or CAP_SYS_PTRACE, when it attached? Such a tracer could write
 * to the memory.
 */
bool tlk_memory_has_weak_tracer(struct task_struct *thread);

/* May the current thread be in supervisor mode, by what it is now? */
bool tlk_may_be_in_supervisor_mode(void);

/*
 * Where a function seems to return while its end is traced; 0 on kernels that have no such
 * place.
 */
extern unsigned long tlk_traced_returns[3];

/* Have tracers of functions (kretprobes, ftrace) put this return address in place of another? */
static inline bool tlk_is_traced_return(unsigned long address)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(tlk_traced_returns); i++)
		if (address == tlk_traced_returns[i])
			return true;
	return false;
}

static inline bool tlk_is_confined(struct task_struct *task)
{
#ifdef CONFIG_SECCOMP
	return READ_ONCE(task->seccomp.mode) != 0;
#else
	return false;
#endif
}

/*
 * Is it a kernel thread? Some of them belong to a process, and begin with a copy of the frame of
 * the thread that made them.
 */
static inline bool tlk_is_of_kernel(const struct task_struct *thread)
{
#ifdef PF_USER_WORKER
	const unsigned int of_kernel = PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER;
#else
	const unsigned int of_kernel = PF_KTHREAD | PF_IO_WORKER;
#endif

	return READ_ONCE(thread->flags) & of_kernel;
}

/* Will the thread return to user mode? */
static inline bool tlk_thread_returns_to_user(const struct task_struct *thread)
{
	return !tlk_is_of_kernel(thread) && !(READ_ONCE(thread->flags) & PF_EXITING);
}

#endif /* TLK_COMPAT_TASK_H */
