/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Processes that were switched: what was asked of each, its threads and its counts. This header
 * owns the moments at which a thread changes. thread.h owns how it does.
 */
#ifndef TLK_SUPERVISOR_PROCESS_H
#define TLK_SUPERVISOR_PROCESS_H

#include <linux/sched.h>
#include <linux/trapless.h>

struct tlk_thread_state;

/*
 * Registers a request for a process that may be switched; its threads act on it themselves. For
 * supervisor mode, -EAGAIN if the process has executed another program since `memory` was its
 * memory, or if another thread leads it now, and -ESRCH if it has ended; an exec that comes later
 * finds it registered.
 *
 * A process that is to be in supervisor mode is closed to its user here. Returns -EPERM and a
 * refusal if a tracer could write to its memory. The caller holds its cred_guard_mutex, so that no
 * tracer attaches meanwhile.
 */
int tlk_process_switch(struct task_struct *leader, const struct mm_struct *memory,
		       struct tl_switch *request);

#define TLK_FLAGS_NEVER (~TL_SWITCH_FLAGS)	/* no process has these */

/*
 * Moments in the life of the current thread, which hooks.c sees. A process stays in supervisor mode
 * over execve() if it was switched with all of `flags`.
 */
void tlk_process_forked(struct task_struct *child);
void tlk_process_executed(u32 flags);
void tlk_process_exited(void);

/*
 * Takes the current thread, which is in a call, out of supervisor mode: from the call's end on it
 * is in user mode, until it is asked again.
 */
void tlk_process_leave(void);

/*
 * Frees the detached state of the current thread and returns true; or returns false, because the
 * state's work was queued again.
 */
bool tlk_process_free_thread(struct tlk_thread_state *state);

/* How many processes have a thread that is in supervisor mode, or is to be. */
u32 tlk_processes_count(void);

#endif /* TLK_SUPERVISOR_PROCESS_H */
