// SPDX-License-Identifier: GPL-2.0-only
/*
 * Describes switched processes to user space. This file owns which of them a caller may see, and
 * what is summed for each. It changes none.
 */
#include <linux/hashtable.h>
#include <linux/pid.h>
#include <linux/pid_namespace.h>
#include <linux/sched.h>
#include <linux/spinlock.h>
#include <linux/string.h>

#include "compat/task.h"
#include "supervisor/cpu.h"
#include "supervisor/list.h"
#include "supervisor/table.h"
#include "supervisor/thread.h"

static void entry_fill(struct tl_process *entry, const struct tlk_call_counts *counts)
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

static void entry_describe_locked(struct tl_process *entry, struct tlk_process *process, pid_t pid)
{
	struct tlk_call_counts sum = process->past, counts;
	struct task_struct *leader;
	struct tlk_thread_state *state;

	lockdep_assert_held(&tlk_thread_lock);
	entry->pid = pid;
	entry->mode = process->mode;
	entry->flags = process->flags;
	entry->resident = process->resident;
	entry->switches = process->switches;
	list_for_each_entry(state, &process->threads, link) {
		entry->threads++;
		entry->supervisor += state->attached;
		tlk_supervisor_cpu_sum(&state->cpu, &counts);
		tlk_call_counts_add(&sum, &counts);
	}
	entry_fill(entry, &sum);
	rcu_read_lock();
	leader = pid_task(process->pid, PIDTYPE_TGID);
	if (leader)
		strscpy(entry->comm, leader->comm, sizeof(entry->comm));
	rcu_read_unlock();
}

/* The process as the caller may see it: its own user's, or one that it may debug. */
static bool is_visible(const struct tlk_process *process)
{
	struct task_struct *leader;
	bool visible;

	rcu_read_lock();
	leader = pid_task(process->pid, PIDTYPE_TGID);
	visible = leader && tlk_may_see(leader);
	rcu_read_unlock();
	return visible;
}

u32 tlk_processes_list(struct tl_process *entries, u32 count)
{
	struct pid_namespace *namespace = task_active_pid_ns(current);
	struct tlk_process *process;
	unsigned int bucket;
	u32 total = 0;

	spin_lock(&tlk_thread_lock);
	hash_for_each(tlk_process_table, bucket, process, node) {
		pid_t pid = pid_nr_ns(process->pid, namespace);

		if (!pid || !is_visible(process))
			continue;
		if (total < count)
			entry_describe_locked(&entries[total], process, pid);
		total++;
	}
	if (total < count) {
		entry_fill(&entries[total], &tlk_ended.counts);
		entries[total].switches = tlk_ended.switches;
		strscpy(entries[total].comm, "(ended)", sizeof(entries[total].comm));
	}
	spin_unlock(&tlk_thread_lock);
	return total + 1;
}
