// SPDX-License-Identifier: GPL-2.0-only
/*
 * Records the mode that each switched process is asked to run in, and makes its threads follow.
 * This file owns the table of processes and the sums of their counts. It touches no processor.
 *
 * A process is identified by its signal_struct, which lives as long as any of its threads and never
 * belongs to two processes, so a reused process ID finds no old entry. A process is in the table
 * while any of its threads has a state.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/errno.h>
#include <linux/hashtable.h>
#include <linux/lockdep.h>
#include <linux/mman.h>
#include <linux/module.h>
#include <linux/pid.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "compat/assert.h"
#include "compat/dumpable.h"
#include "compat/symbols.h"
#include "compat/task.h"
#include "supervisor/cpu.h"
#include "supervisor/hlt.h"
#include "supervisor/process.h"
#include "supervisor/table.h"
#include "supervisor/thread.h"

DEFINE_HASHTABLE(tlk_process_table, TLK_PROCESS_BITS);
struct tlk_ended_processes tlk_ended;

static u32 processes;				/* in the table */

static struct tlk_process *process_find_locked(const struct signal_struct *signal)
{
	struct tlk_process *process;

	lockdep_assert_held(&tlk_thread_lock);
	hash_for_each_possible(tlk_process_table, process, node, (unsigned long)signal)
		if (process->signal == signal)
			return process;
	return NULL;
}

static struct tlk_process *process_create_locked(struct task_struct *leader)
{
	struct tlk_process *process;

	lockdep_assert_held(&tlk_thread_lock);
	process = kzalloc(sizeof(*process), GFP_ATOMIC | __GFP_NOWARN);
	if (!process)
		return NULL;
	process->signal = leader->signal;
	process->pid = get_pid(task_tgid(leader));
	INIT_LIST_HEAD(&process->threads);
	hash_add(tlk_process_table, &process->node, (unsigned long)process->signal);
	WRITE_ONCE(processes, processes + 1);
	return process;
}

/* No thread of the process is in supervisor mode any more, or it has other memory. */
static void open_locked(struct tlk_process *process)
{
	lockdep_assert_held(&tlk_thread_lock);
	if (process->closed)
		tlk_dumpable_open(process->closed);
	process->closed = NULL;
}

static void process_destroy_locked(struct tlk_process *process)
{
	lockdep_assert_held(&tlk_thread_lock);
	TLK_ASSERT(list_empty(&process->threads));
	open_locked(process);
	tlk_call_counts_add(&tlk_ended.counts, &process->past);
	tlk_ended.switches += process->switches;
	hash_del(&process->node);
	WRITE_ONCE(processes, processes - 1);
	put_pid(process->pid);
	kfree(process);
}

/* The process stays in the table, and closed, only as long as it has to. */
static void settle_locked(struct tlk_process *process)
{
	lockdep_assert_held(&tlk_thread_lock);
	if (list_empty(&process->threads))
		process_destroy_locked(process);
	else if (process->mode != TL_MODE_SUPERVISOR && !process->attached)
		open_locked(process);
}

static void thread_work(struct callback_head *head);

/* Each state holds a reference to the module. */
static struct tlk_thread_state *thread_add_locked(struct tlk_process *process,
						  const struct task_struct *task)
{
	struct tlk_thread_state *state = tlk_thread_alloc();

	if (!state)
		return NULL;
	/* The caller holds the module: by an open file, or by the state of the forking thread. */
	__module_get(THIS_MODULE);
	tlk_thread_init(state, task, thread_work);
	state->process = process;
	list_add_tail(&state->link, &process->threads);
	tlk_thread_insert_locked(state, task);
	return state;
}

/* The module may be unloaded from here on, except for what the caller holds. */
static void thread_remove_locked(struct tlk_thread_state *state)
{
	struct tlk_process *process = state->process;

	list_del(&state->link);
	tlk_call_counts_add(&process->past, &state->cpu.counts);
	tlk_thread_free_locked(state);
	settle_locked(process);
	module_put(THIS_MODULE);
}

static void thread_mark_locked(struct tlk_thread_state *state, bool attached)
{
	lockdep_assert_held(&tlk_thread_lock);
	state->process->attached += attached - state->attached;
	state->attached = attached;
	settle_locked(state->process);
}

/* The current thread is no longer in supervisor mode; its state stays. */
static void thread_detach_locked(struct tlk_thread_state *state)
{
	tlk_thread_detach(state);
	thread_mark_locked(state, false);
}

/* The current thread is no longer in supervisor mode. Its state stays only for queued work. */
static void thread_end_locked(struct tlk_thread_state *state)
{
	if (state->attached)
		thread_detach_locked(state);
	if (!state->queued)
		thread_remove_locked(state);
}

static bool wants_residency(const struct tlk_process *process)
{
	return process->mode == TL_MODE_SUPERVISOR && process->flags & TL_SWITCH_RESIDENT;
}

/* Asks one thread to change to the mode of its process. */
static int thread_ask_locked(struct tlk_process *process, struct task_struct *thread, bool on)
{
	struct tlk_thread_state *state = tlk_thread_find_locked(thread);

	if (!state && on)
		state = thread_add_locked(process, thread);
	if (!state)
		return on ? -ENOMEM : 0;
	if (state->queued ||
	    (state->attached == on && process->locking == wants_residency(process)))
		return 0;
	tlk_thread_queue_work_locked(state, thread);
	if (!state->queued && !state->attached)
		thread_remove_locked(state);
	return 0;
}

/*
 * The process is about to have a thread in supervisor mode: whoever could write to its memory would
 * have the kernel. From now on writing to it takes CAP_SYS_PTRACE, as for a set-user-ID program.
 * What was closed before may be the same memory or, amid execve(), the earlier program's.
 */
static int close_locked(struct tlk_process *process, struct task_struct *leader, u32 *refusal)
{
	struct tlk_closed *closed = tlk_dumpable_close(leader);
	int error = 0;

	lockdep_assert_held(&tlk_thread_lock);
	if (closed && tlk_memory_has_weak_tracer(leader)) {
		*refusal = TL_REFUSED_TRACED;
		error = -EPERM;
	}
	if (!error && !READ_ONCE(leader->mm))	/* then the check for tracers was void, too */
		error = -ESRCH;
	else if (!closed)
		error = -ENOMEM;
	if (!error) {
		open_locked(process);
		process->closed = closed;
	} else if (closed) {
		tlk_dumpable_open(closed);
	}
	return error;
}

static int process_ask_locked(struct tlk_process *process, struct task_struct *leader,
			      struct tl_switch *request)
{
	bool on = request->mode == TL_MODE_SUPERVISOR;
	struct task_struct *thread;
	int error = on ? close_locked(process, leader, &request->refusal) : 0;

	lockdep_assert_held(&tlk_thread_lock);
	if (error) {
		settle_locked(process);
		return error;
	}
	process->mode = request->mode;
	process->flags = request->flags;
	process->switches++;
	/*
	 * From here on new threads get their states in their parents' forks. One that is in the
	 * list already is asked like the others; if its parent's fork comes here later, it finds
	 * the state.
	 */
	rcu_read_lock();
	for_each_thread(leader, thread) {
		if (tlk_thread_returns_to_user(thread))
			error = thread_ask_locked(process, thread, on) ?: error;
	}
	rcu_read_unlock();
	settle_locked(process);
	return error;
}

int tlk_process_switch(struct task_struct *leader, const struct mm_struct *memory,
		       struct tl_switch *request)
{
	const struct mm_struct *now;
	struct tlk_process *process;
	int error = 0;

	spin_lock(&tlk_thread_lock);
	now = READ_ONCE(leader->mm);
	/* It has executed a program or ended, or another thread leads it now. */
	if (request->mode == TL_MODE_SUPERVISOR && (!now || now != memory)) {
		bool has_ended = !now && READ_ONCE(leader->group_leader) == leader;

		error = has_ended ? -ESRCH : -EAGAIN;
	}
	process = error ? NULL : process_find_locked(leader->signal);
	if (!process && request->mode == TL_MODE_SUPERVISOR && !error) {
		process = process_create_locked(leader);
		if (!process)
			error = -ENOMEM;
	}
	if (process)
		error = process_ask_locked(process, leader, request);
	spin_unlock(&tlk_thread_lock);
	return error;
}

/*
 * Locks the memory of the current process, as mlockall(2) of its own would, or unlocks it. The
 * first thread that comes does it. The result of mlockall() is kept for tl_process.resident.
 */
static void residency_follow(struct tlk_process *process)
{
	struct pt_regs call = { .di = MCL_CURRENT | MCL_FUTURE };
	bool lock_it, unlock_it;
	long result;

	spin_lock(&tlk_thread_lock);
	lock_it = wants_residency(process) && !process->locking;
	unlock_it = !wants_residency(process) && process->resident == 1;
	process->locking = wants_residency(process);
	if (unlock_it)
		process->resident = 0;
	spin_unlock(&tlk_thread_lock);

	if (lock_it) {
		result = tlk_syscall_table()[__NR_mlockall](&call);
		spin_lock(&tlk_thread_lock);
		process->resident = result ? (s32)result : 1;
		spin_unlock(&tlk_thread_lock);
	} else if (unlock_it) {
		tlk_syscall_table()[__NR_munlockall](&call);
	}
}

/* A thread acts on what was asked, as work of its own, at its next return to user mode. */
static void thread_work(struct callback_head *head)
{
	struct tlk_thread_state *state = container_of(head, struct tlk_thread_state, work);
	bool exiting = current->flags & PF_EXITING;
	/* execve leaves one thread, and it is this one. */
	bool executed = !exiting && READ_ONCE(state->process->executed);
	bool refused = executed && tlk_program_ends_by_hlt(current);
	bool was, on;

	spin_lock(&tlk_thread_lock);
	state->queued = false;
	if (executed)
		state->process->executed = false;
	refused = refused && !(state->process->flags & TL_SWITCH_ALLOW_HLT);
	if (refused)
		state->process->mode = TL_MODE_USER;
	was = state->attached;
	on = !exiting && state->process->mode == TL_MODE_SUPERVISOR &&
	     tlk_may_be_in_supervisor_mode();
	thread_mark_locked(state, on);
	spin_unlock(&tlk_thread_lock);

	if (refused)
		pr_notice_ratelimited("%s[%d] runs in user mode: a program that hlt ends\n",
				      current->comm, task_pid_nr(current));
	if (on != was) {
		if (on)
			tlk_thread_attach(state);
		else
			tlk_thread_detach(state);
	}
	if (!exiting)
		residency_follow(state->process);
	if (!on && !exiting && tlk_thread_is_in_call())
		state->leaving = true;
	else if (!on)
		tlk_process_free_thread(state);
}

bool tlk_process_free_thread(struct tlk_thread_state *state)
{
	bool done;

	spin_lock(&tlk_thread_lock);
	/* If the thread was asked again meanwhile, the queued work uses the state. */
	done = !state->queued && !state->attached;
	state->leaving = false;
	if (done)
		thread_remove_locked(state);
	spin_unlock(&tlk_thread_lock);
	return done;
}

/*
 * A child gets its parent's mode if that was asked for. Otherwise it is in user mode and as open as
 * ever, even if its parent was closed because others share the parent's memory. A child that was
 * copied before its parent was closed is in user mode, too: somebody may have opened its memory. A
 * child that was switched itself already stays as it is.
 */
static struct tlk_process *child_process_locked(const struct tlk_process *family,
						struct task_struct *child)
{
	struct tlk_process *process = process_find_locked(child->signal), *made = NULL;
	struct tlk_closed *closed = tlk_dumpable_of_child(child);

	lockdep_assert_held(&tlk_thread_lock);
	if (!closed)
		return NULL;
	if (!process && family && family->mode == TL_MODE_SUPERVISOR &&
	    family->flags & TL_SWITCH_CHILDREN)
		process = made = process_create_locked(child);
	if (made) {
		made->mode = family->mode;
		made->flags = family->flags;
	}
	if (process && !process->closed)
		process->closed = closed;
	else
		tlk_dumpable_open(closed);
	return made;
}

void tlk_process_forked(struct task_struct *child)
{
	struct tlk_process *process, *family;
	struct tlk_thread_state *state;

	if (!READ_ONCE(processes) || !child->mm)
		return;
	spin_lock(&tlk_thread_lock);
	family = process_find_locked(current->signal);
	process = child->signal == current->signal ? family : child_process_locked(family, child);
	if (!process || process->mode != TL_MODE_SUPERVISOR)
		goto out;
	state = tlk_thread_find_locked(child) ? NULL : thread_add_locked(process, child);
	if (state) {
		thread_mark_locked(state, true);
		tlk_thread_attach_child(state, child);
		if (wants_residency(process) && !process->locking)
			tlk_thread_queue_work_locked(state, child);
	} else {
		settle_locked(process);
	}
out:
	spin_unlock(&tlk_thread_lock);
}

/*
 * The new program's memory is closed before anybody is told that there is one, and its tracers are
 * looked for after that.
 */
static bool executed_stays_locked(struct tlk_process *process, u32 flags)
{
	struct tlk_closed *closed = NULL;
	bool stays = (process->flags & flags) == flags;

	lockdep_assert_held(&tlk_thread_lock);
	/* A request that came after the new memory was in place was about this program. */
	if (flags != TLK_FLAGS_NEVER && process->closed)
		stays |= tlk_dumpable_is_of(process->closed, current);
	if (stays && process->mode == TL_MODE_SUPERVISOR) {
		closed = tlk_dumpable_close(current);
		stays = closed && tlk_may_be_in_supervisor_mode();
	}
	if (closed && !stays) {
		tlk_dumpable_open(closed);
		closed = NULL;
	}
	open_locked(process);
	process->closed = closed;
	return stays;
}

void tlk_process_executed(u32 flags)
{
	struct tlk_thread_state *state = tlk_thread_attached();
	struct tlk_process *process;

	if (!READ_ONCE(processes))
		return;
	spin_lock(&tlk_thread_lock);
	process = process_find_locked(current->signal);
	if (!process)
		goto out;
	if (executed_stays_locked(process, flags)) {
		process->locking = false;	/* the new program's memory is not locked yet */
		process->resident = 0;
		process->executed = true;
		if (state && !state->queued)
			tlk_thread_queue_work_locked(state, current);
		goto out;
	}
	process->mode = TL_MODE_USER;
	if (state)
		thread_end_locked(state);
out:
	spin_unlock(&tlk_thread_lock);
}

/* A thread that ends in the very call in which it was switched back still has a state. */
void tlk_process_exited(void)
{
	struct tlk_thread_state *state;

	if (!READ_ONCE(processes))
		return;
	spin_lock(&tlk_thread_lock);
	state = tlk_thread_find_locked(current);
	if (state)
		thread_end_locked(state);
	spin_unlock(&tlk_thread_lock);
}

void tlk_process_leave(void)
{
	struct tlk_thread_state *state;

	spin_lock(&tlk_thread_lock);
	state = tlk_thread_find_locked(current);
	if (state && state->attached && tlk_thread_is_in_call()) {
		thread_detach_locked(state);
		state->leaving = true;
	} else if (state && state->attached) {
		thread_end_locked(state);
	}
	spin_unlock(&tlk_thread_lock);
}

u32 tlk_processes_count(void)
{
	return READ_ONCE(processes);
}
