/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Threads in supervisor mode: the mark that each has, and the moments of its life at which the mark
 * comes, goes or moves to another processor. Which process wants what is supervisor/process.c's.
 */
#ifndef TLK_SUPERVISOR_THREAD_H
#define TLK_SUPERVISOR_THREAD_H

#include <linux/list.h>
#include <linux/preempt.h>
#include <linux/sched.h>
#include <linux/task_work.h>
#include <linux/trapless.h>

struct tlk_process;

/* Calls by the way they went, and demotions by cause: see struct tl_process. */
struct tlk_counts {
	u64 direct, worked, left, kernel;
	u64 demotions[TL_DEMOTIONS];
};

/*
 * A mark exists from the request that concerns its thread, or from the thread's fork, to its exit,
 * its exec or the end of a switch back. It holds a reference to the module. It is freed by its own
 * thread, when `work` is not queued.
 */
struct tlk_mark {
	struct preempt_notifier notifier;
	struct callback_head work;
	const struct task_struct *task;	/* to compare with; current, where it is dereferenced */
	struct tlk_process *process;

	/* Under the lock of supervisor/process.c. */
	struct list_head link;		/* among the process's marks */
	struct hlist_node node;		/* among all marks, by task */
	bool queued;			/* work is */
	bool attached;			/* the notifier is, or its thread is about to do it */

	/* The thread's own. */
	bool leaving;			/* switched back in a call, at whose end the mark goes */
	struct tlk_counts counts;	/* with interrupts off; others read at most an old value */
};

int tlk_supervisor_threads_init(void);
void tlk_supervisor_threads_exit(void);

void tlk_mark_init(struct tlk_mark *mark, struct tlk_process *process,
		   const struct task_struct *task);

/* The mark of the current thread, if it is in supervisor mode. */
struct tlk_mark *tlk_mark_current(void);

/* Of the current thread, in process context; after the second, no more calls are ours. */
void tlk_mark_attach(struct tlk_mark *mark);
void tlk_mark_detach(struct tlk_mark *mark);

/* Of a thread that has not run yet: a child in its parent's fork. */
void tlk_mark_attach_child(struct tlk_mark *mark, struct task_struct *child);

#endif /* TLK_SUPERVISOR_THREAD_H */
