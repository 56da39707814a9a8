// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sets supervisor mode up and takes it down in reverse order, and leads requests through their
 * checks to process.c. This file owns the order, module parameters and what is logged. refusal.c
 * owns the checks.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/errno.h>
#include <linux/moduleparam.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/panic.h>
#include <linux/pid.h>
#include <linux/printk.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>

#include "compat/dumpable.h"
#include "compat/task.h"
#include "supervisor/call.h"
#include "supervisor/cpu.h"
#include "supervisor/hooks.h"
#include "supervisor/kvm.h"
#include "supervisor/process.h"
#include "supervisor/refusal.h"
#include "supervisor/supervisor.h"
#include "supervisor/thread.h"

static bool supervisor;
module_param(supervisor, bool, 0444);
MODULE_PARM_DESC(supervisor, "offer supervisor mode: gives up protection (default: no)");

static bool refuse_ibt;
module_param(refuse_ibt, bool, 0444);
MODULE_PARM_DESC(refuse_ibt, "refuse supervisor mode where IBT or LASS is on (default: no)");

static u64 refusals __ro_after_init;
static bool ready __ro_after_init;

static int __init refuse(enum tl_refusal why)
{
	refusals |= BIT_ULL(why);
	return 0;
}

int __init tlk_supervisor_init(const sys_call_ptr_t *table)
{
	unsigned long kernel_entry;
	int error;

	refusals = tlk_refusals_of_machine(refuse_ibt);
	if (!supervisor)
		return refuse(TL_REFUSED_PARAMETER);
	if (refusals)
		goto refused;
	if (tlk_task_init() || tlk_dumpable_init() ||
	    tlk_supervisor_calls_init(table, &kernel_entry)) {
		refuse(TL_REFUSED_SYMBOL);
		goto refused;
	}
	error = tlk_supervisor_cpus_init(kernel_entry);
	if (error > 0) {
		refuse(error - 1);
		goto refused;
	}
	if (error)
		return error;
	tlk_supervisor_threads_init();
	error = tlk_supervisor_hooks_init();
	if (error)
		goto err_threads;
	error = tlk_supervisor_kvm_init();
	if (error)
		goto err_hooks;
	ready = true;
	return 0;

err_hooks:
	tlk_supervisor_hooks_exit();
err_threads:
	tlk_supervisor_threads_exit();
	tlk_supervisor_cpus_exit();
	return error;

refused:
	pr_warn("supervisor mode is refused here (reasons %#llx; `trapless doctor` explains)\n",
		refusals);
	return 0;
}

/*
 * No thread has a state, because each state holds the module; tlk_exit() has waited for those that
 * were on their last instructions after they had freed theirs.
 */
void tlk_supervisor_exit(void)
{
	if (!ready)
		return;
	WARN_ON_ONCE(tlk_processes_count());
	tlk_supervisor_kvm_exit();
	tlk_supervisor_hooks_exit();
	tlk_supervisor_threads_exit();
	tlk_supervisor_cpus_exit();
}

u64 tlk_supervisor_refusals(void)
{
	return refusals | tlk_refusals_of_moment();
}

bool tlk_supervisor_is_offered(void)
{
	return ready;
}

static struct task_struct *find_process(pid_t number)
{
	struct task_struct *task;
	struct pid *pid;

	if (!number) {
		get_task_struct(current->group_leader);
		return current->group_leader;
	}
	pid = find_get_pid(number);
	task = get_pid_task(pid, PIDTYPE_TGID);
	put_pid(pid);
	return task;
}

static void warn_and_taint(struct task_struct *leader)
{
	pr_notice_once("%s[%d] is the first process in supervisor mode: it can do anything to this "
		       "kernel, by mistake or on purpose\n", leader->comm, task_pid_nr(leader));
	add_taint(TAINT_USER, LOCKDEP_STILL_OK);
}

/*
 * From here on a tracer that attaches waits. The checks above may take as long as the target
 * likes.
 */
static int switch_guarded(struct task_struct *leader, const struct mm_struct *memory,
			  struct tl_switch *request)
{
	struct mutex *guard = &leader->signal->cred_guard_mutex;
	int error = mutex_lock_killable(guard);

	if (error)
		return error;
	warn_and_taint(leader);
	error = tlk_process_switch(leader, memory, request);
	mutex_unlock(guard);
	return error;
}

int tlk_supervisor_switch(struct tl_switch *request)
{
	u64 machine = tlk_supervisor_refusals();
	struct task_struct *leader;
	struct mm_struct *memory;
	int error;

	request->refusal = TL_REFUSED_NONE;
	if (machine && (request->mode == TL_MODE_SUPERVISOR || !ready)) {
		request->refusal = __ffs64(machine);
		return -EOPNOTSUPP;
	}
	if (request->pid < 0)
		return -EINVAL;
	leader = find_process(request->pid);
	if (!leader)
		return -ESRCH;
	/*
	 * The memory by which the process is judged. It is held, so that no other gets its
	 * address.
	 */
	memory = request->mode == TL_MODE_SUPERVISOR ? tlk_memory_grab(leader) : NULL;
	if (request->mode == TL_MODE_SUPERVISOR)
		error = tlk_refuse_switch(leader, request->flags, &request->refusal);
	else
		error = tlk_refuse_return(leader, &request->refusal);
	if (!error && request->mode == TL_MODE_SUPERVISOR)
		error = switch_guarded(leader, memory, request);
	else if (!error)
		error = tlk_process_switch(leader, memory, request);
	if (memory)
		mmdrop(memory);
	put_task_struct(leader);
	return error;
}
