// SPDX-License-Identifier: GPL-2.0-only
/*
 * Says whether a task belongs to the program that is counted, by its control group, and whether it
 * is inside a system call. It owns the module's parameter that names the group.
 */
#include <linux/cgroup.h>
#include <linux/module.h>
#include <linux/rcupdate.h>
#include <linux/sched/task_stack.h>
#include <asm/ptrace.h>

#include "owner.h"

static unsigned long long cgroup;
module_param(cgroup, ullong, 0444);
MODULE_PARM_DESC(cgroup, "ID of the program's control group, its folder's inode number");

bool program_is_named(void)
{
	return cgroup != 0;
}

bool is_in_program(struct task_struct *task)
{
	struct cgroup *at;
	bool member = false;

	rcu_read_lock();
	for (at = task_dfl_cgroup(task); at && !member; at = cgroup_parent(at))
		member = cgroup_id(at) == cgroup;
	rcu_read_unlock();
	return member;
}

bool is_in_call(struct task_struct *task)
{
	/* An interrupt or exception leaves a negative number where a system call has its own. */
	return (long)task_pt_regs(task)->orig_ax >= 0;
}

/* By int $0x80 or SYSENTER: supervisor mode replaces the entry of SYSCALL alone. */
bool is_call_of_32_bits(struct task_struct *task)
{
	return task_thread_info(task)->status & TS_COMPAT;
}
