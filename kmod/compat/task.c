// SPDX-License-Identifier: GPL-2.0-only
/*
 * Answers questions about tasks. This file owns which of the kernel's functions do it. They are
 * called through static calls, as those of symbols.c are and for the same reasons.
 */
#include <linux/atomic.h>
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/errno.h>
#include <linux/mm_types.h>
#include <linux/ptrace.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/signal.h>
#include <linux/static_call.h>
#include <linux/user_namespace.h>

#include "compat/entry.h"
#include "compat/symbols.h"
#include "compat/features.h"
#include "compat/task.h"

static bool no_may_access(struct task_struct *task, unsigned int mode)
{
	return false;
}

TLK_CHECK_STAND_IN(ptrace_may_access, no_may_access);

DEFINE_STATIC_CALL(may_access, no_may_access);

unsigned long tlk_traced_returns[3] __ro_after_init;

/* Whether a pending signal has a handler, and the flags of the first one's. */
static bool due_handler(unsigned long *flags)
{
	struct sighand_struct *sighand = current->sighand;
	sigset_t pending;
	bool due = false;
	int number;

	spin_lock_irq(&sighand->siglock);
	sigorsets(&pending, &current->pending.signal, &current->signal->shared_pending.signal);
	sigandnsets(&pending, &pending, &current->blocked);
	for (number = 1; number <= _NSIG && !due; number++) {
		const struct sigaction *action = &sighand->action[number - 1].sa;

		due = sigismember(&pending, number) && action->sa_handler != SIG_DFL &&
		      action->sa_handler != SIG_IGN;
		*flags = action->sa_flags;
	}
	spin_unlock_irq(&sighand->siglock);
	return due;
}

bool tlk_handler_is_due(void)
{
	unsigned long flags;

	return due_handler(&flags);
}

bool tlk_handler_ends_call(void)
{
	unsigned long flags;

	return due_handler(&flags) && !(flags & SA_RESTART);
}

bool tlk_is_ordinary(struct task_struct *task)
{
	const struct cred *cred;
	bool ordinary;

	rcu_read_lock();
	cred = __task_cred(task);
	ordinary = uid_eq(cred->uid, cred->euid) && uid_eq(cred->uid, cred->suid) &&
		   gid_eq(cred->gid, cred->egid) && gid_eq(cred->gid, cred->sgid);
	rcu_read_unlock();
	return ordinary;
}

bool tlk_is_roots(struct task_struct *task)
{
	const struct cred *cred;
	bool is;

	rcu_read_lock();
	cred = __task_cred(task);
	is = uid_eq(cred->uid, GLOBAL_ROOT_UID) && cred->user_ns == &init_user_ns;
	rcu_read_unlock();
	return is;
}

struct mm_struct *tlk_memory_grab(struct task_struct *task)
{
	struct mm_struct *memory;

	task_lock(task);
	memory = task->mm;
	if (memory)
		mmgrab(memory);
	task_unlock(task);
	return memory;
}

static bool has_weak_tracer(struct task_struct *thread)
{
	const struct cred *cred;
	bool has = false;

	rcu_read_lock();
	cred = rcu_dereference(thread->ptracer_cred);
	if (cred)
		has = cred->user_ns != &init_user_ns ||
		      !cap_raised(cred->cap_effective, CAP_SYS_PTRACE) ||
		      !cap_raised(cred->cap_effective, CAP_SYS_RAWIO) ||
		      !cap_raised(cred->cap_effective, CAP_SYS_MODULE);
	rcu_read_unlock();
	return has;
}

bool tlk_memory_has_weak_tracer(struct task_struct *thread)
{
	struct task_struct *process, *one;
	const struct mm_struct *memory;
	bool has = false;

	rcu_read_lock();
	task_lock(thread);	/* it keeps its memory */
	memory = thread->mm;
	if (memory && atomic_read(&memory->mm_users) > 1) {
		for_each_process_thread(process, one)
			has |= READ_ONCE(one->mm) == memory && has_weak_tracer(one);
	} else {
		has = has_weak_tracer(thread);
	}
	task_unlock(thread);
	rcu_read_unlock();
	return has;
}

int __init tlk_task_init(void)
{
	void *address = tlk_symbol("ptrace_may_access");

	if (!address)
		return -ENOENT;
	static_call_update(may_access, address);
	tlk_traced_returns[0] = (unsigned long)tlk_symbol("return_to_handler");
	tlk_traced_returns[1] = (unsigned long)tlk_symbol("arch_rethook_trampoline");
	tlk_traced_returns[2] = (unsigned long)tlk_symbol("__kretprobe_trampoline");
	return 0;
}

bool tlk_may_debug(struct task_struct *task)
{
	return static_call(may_access)(task, PTRACE_MODE_ATTACH_REALCREDS);
}

bool tlk_may_see(struct task_struct *task)
{
	return uid_eq(task_uid(task), current_uid()) ||
	       static_call(may_access)(task, PTRACE_MODE_READ_FSCREDS | PTRACE_MODE_NOAUDIT);
}

bool tlk_may_be_in_supervisor_mode(void)
{
	return !test_thread_flag(TIF_ADDR32) && !tlk_is_confined(current) &&
	       tlk_is_ordinary(current) && !has_weak_tracer(current) &&
	       !tlk_has_shadow_stack(current);
}
