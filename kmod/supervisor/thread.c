// SPDX-License-Identifier: GPL-2.0-only
/*
 * Follows threads in supervisor mode onto processors and off them, by the scheduler's notifiers.
 * This file owns the notifiers and the attaching of thread states. It decides nothing about modes.
 */
#include <linux/irqflags.h>
#include <linux/kernel.h>
#include <linux/preempt.h>
#include <linux/sched/task_stack.h>

#include "compat/features.h"
#include "compat/task.h"
#include "supervisor/cpu.h"
#include "supervisor/entry.h"
#include "supervisor/thread.h"

DEFINE_SPINLOCK(tlk_thread_lock);
DEFINE_HASHTABLE(tlk_thread_states, TLK_THREAD_BITS);

static void sched_in(struct preempt_notifier *notifier, int cpu);
static void sched_out(struct preempt_notifier *notifier, struct task_struct *next);

static struct preempt_ops operations = {
	.sched_in = sched_in,
	.sched_out = sched_out,
};

/* The task is current or is not on a processor: only a thread changes its own list. */
static struct tlk_thread_state *attached_state(struct task_struct *task)
{
	struct preempt_notifier *notifier;

	hlist_for_each_entry(notifier, &task->preempt_notifiers, link)
		if (notifier->ops == &operations)
			return container_of(notifier, struct tlk_thread_state, cpu.notifier);
	return NULL;
}

struct tlk_thread_state *tlk_thread_attached(void)
{
	return attached_state(current);
}

static void sched_in(struct preempt_notifier *notifier, int cpu)
{
	unsigned long flags;

	local_irq_save(flags);
	tlk_supervisor_cpu_arm(container_of(notifier, struct tlk_cpu_thread, notifier));
	local_irq_restore(flags);
}

/* Between two threads in supervisor mode the processor stays armed, which saves its cost. */
static void sched_out(struct preempt_notifier *notifier, struct task_struct *next)
{
	unsigned long flags;

	local_irq_save(flags);
	tlk_supervisor_cpu_leave(!attached_state(next));
	local_irq_restore(flags);
}

void tlk_thread_init(struct tlk_thread_state *state, const struct task_struct *task,
		     task_work_func_t work)
{
	preempt_notifier_init(&state->cpu.notifier, &operations);
	init_task_work(&state->work, work);
	state->task = task;
}

struct tlk_thread_state *tlk_thread_current(void)
{
	struct tlk_thread_state *state;

	spin_lock(&tlk_thread_lock);
	state = tlk_thread_find_locked(current);
	spin_unlock(&tlk_thread_lock);
	return state;
}

void tlk_thread_attach(struct tlk_thread_state *state)
{
	lockdep_assert_irqs_enabled();
	TLK_ASSERT(state->task == current);
	tlk_lock_shadow_stack();
	preempt_disable();
	preempt_notifier_register(&state->cpu.notifier);
	local_irq_disable();
	tlk_supervisor_cpu_arm(&state->cpu);
	local_irq_enable();
	preempt_enable();
}

void tlk_thread_detach(struct tlk_thread_state *state)
{
	lockdep_assert_irqs_enabled();
	TLK_ASSERT(state->task == current);
	preempt_disable();
	local_irq_disable();
	tlk_supervisor_cpu_leave(true);
	local_irq_enable();
	preempt_notifier_unregister(&state->cpu.notifier);
	preempt_enable();
}

void tlk_thread_attach_child(struct tlk_thread_state *state, struct task_struct *child)
{
	hlist_add_head(&state->cpu.notifier.link, &child->preempt_notifiers);
}

/*
 * The two calls of entry.S leave their return address right below the thread's frame, where every
 * way into the kernel leaves one of its own. A tracer may replace a handler's return address. It
 * replaces none in the kernel's ways in, because their functions are not traced.
 */
bool tlk_thread_is_in_call(void)
{
	unsigned long below = READ_ONCE_NOCHECK(((unsigned long *)task_pt_regs(current))[-1]);

	return tlk_is_traced_return(below) ||
	       (below >= (unsigned long)tlk_supervisor_call &&
		below < (unsigned long)tlk_supervisor_hand_over);
}

void __init tlk_supervisor_threads_init(void)
{
	preempt_notifier_inc();
}

void tlk_supervisor_threads_exit(void)
{
	preempt_notifier_dec();
}
