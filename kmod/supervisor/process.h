/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Processes that were switched: what was asked of each, its marks and its counts. Knows when a
 * thread is to change; how it does is supervisor/thread.c's.
 */
#ifndef TLK_SUPERVISOR_PROCESS_H
#define TLK_SUPERVISOR_PROCESS_H

#include <linux/sched.h>
#include <linux/trapless.h>

struct tlk_mark;

/* Register a request for a process that may be switched; its threads act on it themselves. */
int tlk_process_switch(struct task_struct *leader, enum tl_mode mode, u32 flags);

/* Moments in the life of the current thread, seen by supervisor/thread.c. */
void tlk_process_forked(struct task_struct *child);
void tlk_process_executed(struct tlk_mark *mark, bool may_stay);
void tlk_process_exited(void);

/* In a call: the thread is in user mode at its end, and stays so until it is asked again. */
void tlk_process_give_up(void);

/* The thread acts on what was asked: its own work, at its next return to user mode. */
void tlk_process_work(struct callback_head *head);

/* Frees a detached mark of the current thread and returns true, unless its work is queued again. */
bool tlk_mark_free(struct tlk_mark *mark);

/* The mark of the current thread, attached or not; NULL if it has none. */
struct tlk_mark *tlk_mark_known(void);

/* Fills in at most `count` entries; returns how many there are. The last one has pid 0: the
 * counts of all that is over. */
u32 tlk_processes_list(struct tl_process *entries, u32 count);
u32 tlk_processes_count(void);

#endif /* TLK_SUPERVISOR_PROCESS_H */
