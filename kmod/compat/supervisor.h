/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What supervisor mode takes from the kernel under names that differ or are not exported: the work
 * before a return to user mode, and questions about tasks.
 */
#ifndef TLK_COMPAT_SUPERVISOR_H
#define TLK_COMPAT_SUPERVISOR_H

#include <linux/sched.h>
#include <asm/ptrace.h>

/*
 * Finds the kernel's function that does the work before a return to user mode from a system call,
 * or NULL. tlk_leave() calls it with interrupts on; it returns with interrupts off. Whoever jumps
 * to the address itself asks tlk_leave_wants_interrupts_off() first; second argument 0.
 */
void *tlk_leave_init(void);
void tlk_leave(struct pt_regs *regs);
bool tlk_leave_wants_interrupts_off(void);

/* Finds what the questions below need; 0 or -ENOENT. */
int tlk_task_init(void);

/* May the current task debug that one? The kernel's rules, security modules' included. */
bool tlk_may_debug(struct task_struct *task);

/* Real, effective and saved identities are the same: no set-user-ID or set-group-ID program. */
bool tlk_is_ordinary(struct task_struct *task);

/* May the current thread be in supervisor mode, after whatever it has become? */
bool tlk_may_stay(void);

static inline bool tlk_is_confined(struct task_struct *task)
{
#ifdef CONFIG_SECCOMP
	return READ_ONCE(task->seccomp.mode) != 0;
#else
	return false;
#endif
}

/* Not one of the kernel's own threads that it counts among a process's. */
static inline bool tlk_thread_returns_to_user(const struct task_struct *thread)
{
#ifdef PF_USER_WORKER
	const unsigned int never = PF_KTHREAD | PF_EXITING | PF_IO_WORKER | PF_USER_WORKER;
#else
	const unsigned int never = PF_KTHREAD | PF_EXITING | PF_IO_WORKER;
#endif

	return !(READ_ONCE(thread->flags) & never);
}

#endif /* TLK_COMPAT_SUPERVISOR_H */
