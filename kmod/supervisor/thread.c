// SPDX-License-Identifier: GPL-2.0-only
/*
 * Follows marked threads: onto processors and off them (the scheduler's notifiers), through fork,
 * exec and exit (tracepoints). Owns the attaching of marks; decides nothing about modes.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/binfmts.h>
#include <linux/errno.h>
#include <linux/kernel.h>
#include <linux/list.h>
#include <linux/string.h>
#include <linux/tracepoint.h>

#include "compat/supervisor.h"
#include "compat/symbols.h"
#include "supervisor/cpu.h"
#include "supervisor/process.h"
#include "supervisor/thread.h"

static void sched_in(struct preempt_notifier *notifier, int cpu);
static void sched_out(struct preempt_notifier *notifier, struct task_struct *next);

static struct preempt_ops operations = {
	.sched_in = sched_in,
	.sched_out = sched_out,
};

/* Of the current thread or one that is not on a processor: only a thread changes its own list. */
static struct tlk_mark *mark_of(struct task_struct *task)
{
	struct preempt_notifier *notifier;

	hlist_for_each_entry(notifier, &task->preempt_notifiers, link)
		if (notifier->ops == &operations)
			return container_of(notifier, struct tlk_mark, notifier);
	return NULL;
}

struct tlk_mark *tlk_mark_current(void)
{
	return mark_of(current);
}

static void sched_in(struct preempt_notifier *notifier, int cpu)
{
	unsigned long flags;

	local_irq_save(flags);
	tlk_supervisor_cpu_arm(container_of(notifier, struct tlk_mark, notifier));
	local_irq_restore(flags);
}

/* What it costs to disarm and arm again is saved between two marked threads. */
static void sched_out(struct preempt_notifier *notifier, struct task_struct *next)
{
	unsigned long flags;

	local_irq_save(flags);
	tlk_supervisor_cpu_leave(!mark_of(next));
	local_irq_restore(flags);
}

void tlk_mark_init(struct tlk_mark *mark, struct tlk_process *process,
		   const struct task_struct *task)
{
	preempt_notifier_init(&mark->notifier, &operations);
	init_task_work(&mark->work, tlk_process_work);
	mark->process = process;
	mark->task = task;
}

void tlk_mark_attach(struct tlk_mark *mark)
{
	preempt_disable();
	preempt_notifier_register(&mark->notifier);
	local_irq_disable();
	tlk_supervisor_cpu_arm(mark);
	local_irq_enable();
	preempt_enable();
}

void tlk_mark_detach(struct tlk_mark *mark)
{
	preempt_disable();
	local_irq_disable();
	tlk_supervisor_cpu_leave(true);
	local_irq_enable();
	preempt_notifier_unregister(&mark->notifier);
	preempt_enable();
}

void tlk_mark_attach_child(struct tlk_mark *mark, struct task_struct *child)
{
	hlist_add_head(&mark->notifier.link, &child->preempt_notifiers);
}

static void on_fork(void *data, struct task_struct *parent, struct task_struct *child)
{
	tlk_process_forked(child);
}

/*
 * A program that runs with more rights than its caller does not stay in supervisor mode whatever
 * was asked, nor does a 32-bit one.
 */
static void on_exec(void *data, struct task_struct *task, pid_t old_pid, struct linux_binprm *bprm)
{
	tlk_process_executed(tlk_mark_current(), !bprm->secureexec && tlk_may_stay());
}

static void on_exit(void *data, struct task_struct *task)
{
	tlk_process_exited();
}

static struct probe {
	const char *name;
	void *function;
	struct tracepoint *tracepoint;
} probes[] = {
	{ "sched_process_fork", on_fork },
	{ "sched_process_exec", on_exec },
	{ "sched_process_exit", on_exit },
};

static void __init find_tracepoint(struct tracepoint *tracepoint, void *data)
{
	struct probe *probe;

	for (probe = probes; probe < probes + ARRAY_SIZE(probes); probe++)
		if (!strcmp(tracepoint->name, probe->name))
			probe->tracepoint = tracepoint;
}

static void unregister(struct probe *end)
{
	struct probe *probe;

	for (probe = end - 1; probe >= probes; probe--)
		tracepoint_probe_unregister(probe->tracepoint, probe->function, NULL);
	tracepoint_synchronize_unregister();
}

int __init tlk_supervisor_threads_init(void)
{
	struct probe *probe;
	int error;

	for_each_kernel_tracepoint(find_tracepoint, NULL);
	for (probe = probes; probe < probes + ARRAY_SIZE(probes); probe++) {
		error = probe->tracepoint ? tracepoint_probe_register(probe->tracepoint,
								      probe->function, NULL)
					  : -ENOENT;
		if (error) {
			unregister(probe);
			return error;
		}
	}
	preempt_notifier_inc();
	return 0;
}

/* No thread is marked any more. */
void tlk_supervisor_threads_exit(void)
{
	preempt_notifier_dec();
	unregister(probes + ARRAY_SIZE(probes));
}
