/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The state of a thread that is in supervisor mode, is about to be, or was until now. This header
 * owns the state's structure, how states are made, found and freed, and the lock. process.c decides
 * when a thread has a state and what its process wants of it.
 *
 * States are found by a hash: a process may have thousands of threads, and each is looked up under
 * the lock.
 */
#ifndef TLK_SUPERVISOR_THREAD_H
#define TLK_SUPERVISOR_THREAD_H

#include <linux/hashtable.h>
#include <linux/list.h>
#include <linux/lockdep.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/task_work.h>

#include "compat/assert.h"
#include "compat/symbols.h"
#include "supervisor/cpu.h"

struct tlk_process;

/*
 * A state exists from the request that concerns its thread, or from the thread's fork, to the
 * thread's exit or exec, or to the end of a switch back. It is freed by its own thread, when `work`
 * is not queued.
 */
struct tlk_thread_state {
	struct tlk_cpu_thread cpu;
	struct callback_head work;
	const struct task_struct *task;	/* to compare with; dereferenced only if current */
	struct tlk_process *process;

	/* Under tlk_thread_lock. */
	struct list_head link;		/* among the process's threads */
	struct hlist_node node;		/* in tlk_thread_states, by task */
	bool queued;			/* the work is queued */
	bool attached;			/* the notifier is registered, or its thread will do so */

	bool leaving;			/* the thread's own: switched back in a call, at whose end
					 * the state goes */
};

/*
 * One lock covers the table of processes, the states' links and what is wanted. It is taken by
 * requests, forks and ends of switched processes, never in a system call that just runs.
 */
extern spinlock_t tlk_thread_lock;

#define TLK_THREAD_BITS 10
extern DECLARE_HASHTABLE(tlk_thread_states, TLK_THREAD_BITS);

void tlk_supervisor_threads_init(void);
void tlk_supervisor_threads_exit(void);

/*
 * A state is allocated (NULL if memory is short), initialised for a thread that has none, and
 * inserted. `work` is what the state's work does. Making a state is inline, like finding and
 * freeing it, because the instructions of a switch are counted.
 */
static inline struct tlk_thread_state *tlk_thread_alloc(void)
{
	return kzalloc(sizeof(struct tlk_thread_state), GFP_ATOMIC | __GFP_NOWARN);
}

void tlk_thread_init(struct tlk_thread_state *state, const struct task_struct *task,
		     task_work_func_t work);

static inline void tlk_thread_insert_locked(struct tlk_thread_state *state,
					    const struct task_struct *task)
{
	lockdep_assert_held(&tlk_thread_lock);
	hash_add(tlk_thread_states, &state->node, (unsigned long)task);
}

static inline void tlk_thread_free_locked(struct tlk_thread_state *state)
{
	lockdep_assert_held(&tlk_thread_lock);
	TLK_ASSERT(!state->attached && !state->queued);
	hash_del(&state->node);
	kfree(state);
}

/* The state of a thread, attached or not; NULL if it has none. */
static inline struct tlk_thread_state *tlk_thread_find_locked(const struct task_struct *task)
{
	struct tlk_thread_state *state;

	lockdep_assert_held(&tlk_thread_lock);
	hash_for_each_possible(tlk_thread_states, state, node, (unsigned long)task)
		if (state->task == task)
			return state;
	return NULL;
}

/* Queues the state's work. A thread that is past its last work frees its state at its exit. */
static inline void tlk_thread_queue_work_locked(struct tlk_thread_state *state,
						struct task_struct *thread)
{
	lockdep_assert_held(&tlk_thread_lock);
	state->queued = !tlk_task_work_notify(thread, &state->work);
}

/* The state of the current thread, attached or not; takes the lock. */
struct tlk_thread_state *tlk_thread_current(void);

/* The state of the current thread if it is in supervisor mode, else NULL. */
struct tlk_thread_state *tlk_thread_attached(void);

/*
 * Put the current thread into supervisor mode and take it out, in process context. After the
 * second, the module gets no more calls of this thread.
 */
void tlk_thread_attach(struct tlk_thread_state *state);
void tlk_thread_detach(struct tlk_thread_state *state);

/* The same for a thread that has not run yet: a child in its parent's fork. */
void tlk_thread_attach_child(struct tlk_thread_state *state, struct task_struct *child);

/* Is the current thread in a call that it made in supervisor mode, or at the end of one? */
bool tlk_thread_is_in_call(void);

#endif /* TLK_SUPERVISOR_THREAD_H */
