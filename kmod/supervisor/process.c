// SPDX-License-Identifier: GPL-2.0-only
/*
 * What is wanted of each process, and how its threads come to do it. Owns the table of processes,
 * their marks and the sums of their counts; touches no processor.
 *
 * A process is known by its signal_struct, which lives as long as any of its threads and is never
 * two processes' at once, so a reused process ID finds nothing old. It is in the table while it has
 * marks. One lock covers the table, the marks' links and what is wanted; it is taken by requests,
 * forks and ends of switched processes, never in a system call that just runs. So threads are found
 * by a hash: a process may have thousands, each of which is asked under the lock.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/errno.h>
#include <linux/hashtable.h>
#include <linux/mman.h>
#include <linux/module.h>
#include <linux/pid.h>
#include <linux/pid_namespace.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "compat/supervisor.h"
#include "compat/symbols.h"
#include "supervisor/call.h"
#include "supervisor/cpu.h"
#include "supervisor/process.h"
#include "supervisor/thread.h"

#define TABLE_BITS 6
#define MARKS_BITS 10

struct tlk_process {
	struct hlist_node node;
	const struct signal_struct *signal;	/* who it is; never dereferenced */
	struct pid *pid;
	enum tl_mode mode;			/* wanted */
	u32 flags;
	s32 resident;
	bool locking;				/* a thread has locked the memory, or is at it */
	u64 switches;
	struct list_head marks;
	struct tlk_counts past;			/* of marks that are gone */
};

static DEFINE_SPINLOCK(lock);
static DEFINE_HASHTABLE(table, TABLE_BITS);
static DEFINE_HASHTABLE(marks, MARKS_BITS);	/* of all processes, by thread */
static u32 processes;				/* in the table */
static struct tlk_counts ended;			/* of processes that are gone */
static u64 ended_switches;

static void counts_add(struct tlk_counts *sum, const struct tlk_counts *counts)
{
	int cause;

	sum->direct += counts->direct;
	sum->worked += counts->worked;
	sum->left += counts->left;
	sum->kernel += counts->kernel;
	for (cause = 0; cause < TL_DEMOTIONS; cause++)
		sum->demotions[cause] += counts->demotions[cause];
}

static struct tlk_process *process_find(const struct signal_struct *signal)
{
	struct tlk_process *process;

	hash_for_each_possible(table, process, node, (unsigned long)signal)
		if (process->signal == signal)
			return process;
	return NULL;
}

static struct tlk_process *process_create(struct task_struct *leader)
{
	struct tlk_process *process = kzalloc(sizeof(*process), GFP_ATOMIC | __GFP_NOWARN);

	if (!process)
		return NULL;
	process->signal = leader->signal;
	process->pid = get_pid(task_tgid(leader));
	INIT_LIST_HEAD(&process->marks);
	hash_add(table, &process->node, (unsigned long)process->signal);
	WRITE_ONCE(processes, processes + 1);
	return process;
}

static void process_destroy(struct tlk_process *process)
{
	counts_add(&ended, &process->past);
	ended_switches += process->switches;
	hash_del(&process->node);
	WRITE_ONCE(processes, processes - 1);
	put_pid(process->pid);
	kfree(process);
}

static struct tlk_mark *mark_find(const struct task_struct *task)
{
	struct tlk_mark *mark;

	hash_for_each_possible(marks, mark, node, (unsigned long)task)
		if (mark->task == task)
			return mark;
	return NULL;
}

static struct tlk_mark *mark_create(struct tlk_process *process, const struct task_struct *task)
{
	struct tlk_mark *mark = kzalloc(sizeof(*mark), GFP_ATOMIC | __GFP_NOWARN);

	if (!mark)
		return NULL;
	/* Our caller holds the module: by an open file, or by the mark of the forking thread. */
	__module_get(THIS_MODULE);
	tlk_mark_init(mark, process, task);
	list_add_tail(&mark->link, &process->marks);
	hash_add(marks, &mark->node, (unsigned long)task);
	return mark;
}

/* Under the lock. The module may be unloaded from here on but for what the caller holds. */
static void mark_destroy(struct tlk_mark *mark)
{
	struct tlk_process *process = mark->process;

	hash_del(&mark->node);
	list_del(&mark->link);
	counts_add(&process->past, &mark->counts);
	kfree(mark);
	if (list_empty(&process->marks))
		process_destroy(process);
	module_put(THIS_MODULE);
}

/*
 * The current thread is in supervisor mode no more; its mark stays. Under the lock, like the next.
 */
static void mark_detach(struct tlk_mark *mark)
{
	mark->attached = false;
	tlk_mark_detach(mark);
}

/* Nor does the mark stay, unless work is queued that will see to it. */
static void mark_end(struct tlk_mark *mark)
{
	if (mark->attached)
		mark_detach(mark);
	if (!mark->queued)
		mark_destroy(mark);
}

static bool wants_residency(const struct tlk_process *process)
{
	return process->mode == TL_MODE_SUPERVISOR && process->flags & TL_SWITCH_RESIDENT;
}

/* Under the lock. A thread that is past its last work frees what it has at its exit. */
static void mark_queue(struct tlk_mark *mark, struct task_struct *thread)
{
	mark->queued = !tlk_task_work_notify(thread, &mark->work);
}

/* Ask one thread to become what its process is to be. Under the lock. */
static int thread_ask(struct tlk_process *process, struct task_struct *thread, bool on)
{
	struct tlk_mark *mark = mark_find(thread);

	if (!mark && on)
		mark = mark_create(process, thread);
	if (!mark)
		return on ? -ENOMEM : 0;
	if (mark->queued ||
	    (mark->attached == on && process->locking == wants_residency(process)))
		return 0;
	mark_queue(mark, thread);
	if (!mark->queued && !mark->attached)
		mark_destroy(mark);
	return 0;
}

int tlk_process_switch(struct task_struct *leader, enum tl_mode mode, u32 flags)
{
	bool on = mode == TL_MODE_SUPERVISOR;
	struct tlk_process *process;
	struct task_struct *thread;
	int error = 0;

	spin_lock(&lock);
	process = process_find(leader->signal);
	if (!process && on) {
		process = process_create(leader);
		if (!process)
			error = -ENOMEM;
	}
	if (process) {
		process->mode = mode;
		process->flags = flags;
		process->switches++;
		/*
		 * From here on new threads are marked by their parents' forks. One that is in the
		 * list already is asked like the others; if its parent's fork sees it after
		 * us, too, it finds the mark.
		 */
		rcu_read_lock();
		for_each_thread(leader, thread) {
			if (tlk_thread_returns_to_user(thread))
				error = thread_ask(process, thread, on) ?: error;
		}
		rcu_read_unlock();
		if (list_empty(&process->marks))
			process_destroy(process);
	}
	spin_unlock(&lock);
	return error;
}

/*
 * Lock the memory of the current process, as mlockall(2) of its own would, or unlock it. The first
 * thread to come does it. What mlockall() answers is kept for tl_process.resident.
 */
static void residency_follow(struct tlk_process *process)
{
	struct pt_regs call = { .di = MCL_CURRENT | MCL_FUTURE };
	bool lock_it, unlock_it;
	long result;

	spin_lock(&lock);
	lock_it = wants_residency(process) && !process->locking;
	unlock_it = !wants_residency(process) && process->resident == 1;
	process->locking = wants_residency(process);
	if (unlock_it)
		process->resident = 0;
	spin_unlock(&lock);

	if (lock_it) {
		result = tlk_syscall_table()[__NR_mlockall](&call);
		spin_lock(&lock);
		process->resident = result ? (s32)result : 1;
		spin_unlock(&lock);
	} else if (unlock_it) {
		tlk_syscall_table()[__NR_munlockall](&call);
	}
}

void tlk_process_work(struct callback_head *head)
{
	struct tlk_mark *mark = container_of(head, struct tlk_mark, work);
	bool exiting = current->flags & PF_EXITING;
	bool was, on;

	spin_lock(&lock);
	mark->queued = false;
	was = mark->attached;
	on = !exiting && mark->process->mode == TL_MODE_SUPERVISOR && tlk_may_stay();
	mark->attached = on;
	spin_unlock(&lock);

	if (on && !was)
		tlk_mark_attach(mark);
	else if (!on && was)
		tlk_mark_detach(mark);
	if (!exiting)
		residency_follow(mark->process);
	if (!on && !exiting && tlk_supervisor_call_is_open())
		mark->leaving = true;
	else if (!on)
		tlk_mark_free(mark);
}

struct tlk_mark *tlk_mark_known(void)
{
	struct tlk_mark *mark;

	spin_lock(&lock);
	mark = mark_find(current);
	spin_unlock(&lock);
	return mark;
}

bool tlk_mark_free(struct tlk_mark *mark)
{
	bool done;

	spin_lock(&lock);
	/* Asked again meanwhile? Then the work that is queued goes on with it. */
	done = !mark->queued && !mark->attached;
	mark->leaving = false;
	if (done)
		mark_destroy(mark);
	spin_unlock(&lock);
	return done;
}

void tlk_process_forked(struct task_struct *child)
{
	struct tlk_process *process, *family;
	struct tlk_mark *mark;

	if (!READ_ONCE(processes) || !child->mm)
		return;
	spin_lock(&lock);
	process = process_find(current->signal);
	if (!process || process->mode != TL_MODE_SUPERVISOR)
		goto out;
	if (child->signal != current->signal) {
		if (!(process->flags & TL_SWITCH_CHILDREN))
			goto out;
		family = process;
		process = process_create(child);
		if (!process)
			goto out;
		process->mode = family->mode;
		process->flags = family->flags;
	}
	mark = mark_find(child) ? NULL : mark_create(process, child);
	if (mark) {
		mark->attached = true;
		tlk_mark_attach_child(mark, child);
		if (wants_residency(process) && !process->locking)
			mark_queue(mark, child);
	} else if (list_empty(&process->marks)) {
		process_destroy(process);
	}
out:
	spin_unlock(&lock);
}

void tlk_process_executed(struct tlk_mark *mark, bool may_stay)
{
	struct tlk_process *process;

	if (!READ_ONCE(processes))
		return;
	spin_lock(&lock);
	process = process_find(current->signal);
	if (!process)
		goto out;
	if (may_stay && process->flags & TL_SWITCH_EXEC) {
		/* The new program's memory is not locked yet. */
		process->locking = false;
		process->resident = 0;
		if (mark && wants_residency(process) && !mark->queued)
			mark_queue(mark, current);
		goto out;
	}
	process->mode = TL_MODE_USER;
	if (mark)
		mark_end(mark);
out:
	spin_unlock(&lock);
}

/* Also a thread that was switched back in the call in which it ends: it has a mark still. */
void tlk_process_exited(void)
{
	struct tlk_mark *mark;

	if (!READ_ONCE(processes))
		return;
	spin_lock(&lock);
	mark = mark_find(current);
	if (mark)
		mark_end(mark);
	spin_unlock(&lock);
}

void tlk_process_give_up(void)
{
	struct tlk_mark *mark;

	spin_lock(&lock);
	mark = mark_find(current);
	if (!mark || !mark->attached)
		goto out;
	if (tlk_supervisor_call_is_open()) {
		mark_detach(mark);
		mark->leaving = true;
	} else {
		mark_end(mark);
	}
out:
	spin_unlock(&lock);
}

u32 tlk_processes_count(void)
{
	return READ_ONCE(processes);
}

static void entry_fill(struct tl_process *entry, const struct tlk_counts *counts)
{
	int cause;

	entry->calls_direct = counts->direct;
	entry->calls_worked = counts->worked;
	entry->calls_left = counts->left;
	entry->calls_kernel = counts->kernel;
	for (cause = 0; cause < TL_DEMOTIONS; cause++)
		entry->demotions[cause] = counts->demotions[cause];
	entry->demotions[TL_DEMOTED_EXIT] = counts->left;
}

static void entry_describe(struct tl_process *entry, struct tlk_process *process, pid_t pid)
{
	struct tlk_counts sum = process->past;
	struct task_struct *leader;
	struct tlk_mark *mark;

	entry->pid = pid;
	entry->mode = process->mode;
	entry->flags = process->flags;
	entry->resident = process->resident;
	entry->switches = process->switches;
	list_for_each_entry(mark, &process->marks, link) {
		entry->threads++;
		entry->supervisor += mark->attached;
		counts_add(&sum, &mark->counts);
	}
	entry_fill(entry, &sum);
	rcu_read_lock();
	leader = pid_task(process->pid, PIDTYPE_TGID);
	if (leader)
		strscpy(entry->comm, leader->comm, sizeof(entry->comm));
	rcu_read_unlock();
}

u32 tlk_processes_list(struct tl_process *entries, u32 count)
{
	struct pid_namespace *namespace = task_active_pid_ns(current);
	struct tlk_process *process;
	unsigned int bucket;
	u32 total = 0;

	memset(entries, 0, count * sizeof(*entries));
	tlk_supervisor_cpus_count();
	spin_lock(&lock);
	hash_for_each(table, bucket, process, node) {
		pid_t pid = pid_nr_ns(process->pid, namespace);

		if (!pid)
			continue;
		if (total < count)
			entry_describe(&entries[total], process, pid);
		total++;
	}
	if (total < count) {
		entry_fill(&entries[total], &ended);
		entries[total].switches = ended_switches;
		strscpy(entries[total].comm, "(ended)", sizeof(entries[total].comm));
	}
	spin_unlock(&lock);
	return total + 1;
}
