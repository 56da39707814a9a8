// SPDX-License-Identifier: GPL-2.0-only
/*
 * Records events at tracepoints: each has a row of the table and a typed handler. This file owns
 * which values of a tracepoint's arguments are kept, and what they are called.
 *
 * The names follow the tracepoint in the text of its place, separated by colons. Two that end in .0
 * and .1 are halves of 16 bytes of text.
 */
#include <linux/errno.h>
#include <linux/interrupt.h>
#include <linux/kernel.h>
#include <linux/ptrace.h>
#include <linux/sched.h>
#include <linux/signal_types.h>
#include <linux/string.h>
#include <linux/tracepoint.h>

#include "compat/symbols.h"
#include "compat/tracepoints.h"
#include "probe/event_write.h"

struct tlk_event_row {
	struct tlk_handler handler;
	const char *values;
};

/* A bit beside those of a task's state: the task was preempted. */
#define PREEMPTED BIT_ULL(32)

/* `data` is the number of the place. */
#define RECORD(data, ...)							\
	do {									\
		const u64 values[] = { __VA_ARGS__ };				\
										\
		BUILD_BUG_ON(ARRAY_SIZE(values) > TLK_EVENT_VALUES);		\
		tlk_event_write_values((uintptr_t)(data), values, ARRAY_SIZE(values)); \
	} while (0)

/* The task may change its name meanwhile: at worst half of the old and half of the new is read. */
static __always_inline u64 comm(const struct task_struct *task, unsigned int half)
{
	u64 word;

	BUILD_BUG_ON(sizeof(task->comm) != 2 * sizeof(word));
	memcpy(&word, task->comm + half * sizeof(word), sizeof(word));
	return word;
}

static void on_sched_switch(void *data, bool preempt, struct task_struct *prev,
			    struct task_struct *next, unsigned int prev_state)
{
	RECORD(data, prev->pid, prev_state | prev->exit_state | (preempt ? PREEMPTED : 0),
	       next->pid, next->prio, comm(next, 0), comm(next, 1));
}

static void on_sched_wakeup(void *data, struct task_struct *task)
{
	RECORD(data, task->pid, task->prio, task_cpu(task), comm(task, 0), comm(task, 1));
}

static void on_sched_migrate_task(void *data, struct task_struct *task, int to)
{
	RECORD(data, task->pid, task_cpu(task), to);
}

/* The observer finds the queue's CPU: only the scheduler knows the queue's structure. */
static void on_sched_update_nr_running(void *data, struct rq *rq, int change)
{
	RECORD(data, (uintptr_t)rq, (s64)change);
}

static void on_sched_process_fork(void *data, struct task_struct *parent,
				  struct task_struct *child)
{
	RECORD(data, parent->pid, child->pid, child->tgid, comm(child, 0), comm(child, 1));
}

static void on_sched_process_exec(void *data, struct task_struct *task, pid_t old_pid,
				  struct linux_binprm *bprm)
{
	RECORD(data, task->pid, old_pid, comm(task, 0), comm(task, 1));
}

static void on_sched_process_exit(void *data, struct task_struct *task TLK_EXIT_ARGUMENTS)
{
	RECORD(data, task->pid, task->tgid);
}

static void on_sys_enter(void *data, struct pt_regs *regs, long id)
{
	RECORD(data, id, regs->di, regs->si, regs->dx, regs->r10, regs->r8);
}

static void on_sys_exit(void *data, struct pt_regs *regs, long result)
{
	RECORD(data, regs->orig_ax, result);
}

static void on_irq_handler_entry(void *data, int irq, struct irqaction *action)
{
	RECORD(data, irq, (uintptr_t)action->name, (uintptr_t)action->handler);
}

static void on_irq_handler_exit(void *data, int irq, struct irqaction *action, int result)
{
	RECORD(data, irq, result);
}

static void on_vector(void *data, int vector)
{
	RECORD(data, vector);
}

static void on_softirq(void *data, unsigned int vector)
{
	RECORD(data, vector);
}

static void on_page_fault(void *data, unsigned long address, struct pt_regs *regs,
			  unsigned long error_code)
{
	RECORD(data, address, regs->ip, error_code);
}

static void on_signal_generate(void *data, int signal, struct kernel_siginfo *info,
			       struct task_struct *task, int group, int result)
{
	RECORD(data, signal, task->pid, group, result);
}

static void on_signal_deliver(void *data, int signal, struct kernel_siginfo *info,
			      struct k_sigaction *action)
{
	s64 code;

	/* The kernel's own signals have no information, but one of two marks. */
	if (info == SEND_SIG_NOINFO)
		code = SI_USER;
	else
		code = info == SEND_SIG_PRIV ? SI_KERNEL : info->si_code;
	RECORD(data, signal, code, (uintptr_t)action->sa.sa_handler);
}

/* ROW(tracepoint, the names of its values, handler). */
#define FOR_EACH_ROW(ROW)								\
	ROW(sched_switch, "prev:state:next:prio:comm.0:comm.1", on_sched_switch)	\
	ROW(sched_waking, "pid:prio:cpu:comm.0:comm.1", on_sched_wakeup)		\
	ROW(sched_wakeup, "pid:prio:cpu:comm.0:comm.1", on_sched_wakeup)		\
	ROW(sched_wakeup_new, "pid:prio:cpu:comm.0:comm.1", on_sched_wakeup)		\
	ROW(sched_migrate_task, "pid:from:to", on_sched_migrate_task)			\
	ROW(sched_update_nr_running_tp, "rq:change", on_sched_update_nr_running)	\
	ROW(sched_process_fork, "parent:child:tgid:comm.0:comm.1", on_sched_process_fork)\
	ROW(sched_process_exec, "pid:old_pid:comm.0:comm.1", on_sched_process_exec)	\
	ROW(sched_process_exit, "pid:tgid", on_sched_process_exit)			\
	ROW(sys_enter, "nr:a:b:c:d:e", on_sys_enter)					\
	ROW(sys_exit, "nr:result", on_sys_exit)						\
	ROW(irq_handler_entry, "irq:name:handler", on_irq_handler_entry)		\
	ROW(irq_handler_exit, "irq:result", on_irq_handler_exit)			\
	ROW(local_timer_entry, "vector", on_vector)					\
	ROW(local_timer_exit, "vector", on_vector)					\
	ROW(reschedule_entry, "vector", on_vector)					\
	ROW(reschedule_exit, "vector", on_vector)					\
	ROW(call_function_entry, "vector", on_vector)					\
	ROW(call_function_exit, "vector", on_vector)					\
	ROW(call_function_single_entry, "vector", on_vector)				\
	ROW(call_function_single_exit, "vector", on_vector)				\
	ROW(irq_work_entry, "vector", on_vector)					\
	ROW(irq_work_exit, "vector", on_vector)						\
	ROW(softirq_raise, "vector", on_softirq)					\
	ROW(softirq_entry, "vector", on_softirq)					\
	ROW(softirq_exit, "vector", on_softirq)						\
	ROW(page_fault_user, "address:ip:error", on_page_fault)				\
	ROW(page_fault_kernel, "address:ip:error", on_page_fault)			\
	ROW(signal_generate, "signal:pid:group:result", on_signal_generate)		\
	ROW(signal_deliver, "signal:code:handler", on_signal_deliver)

#define AS_ROW(tracepoint, values, handler) { TLK_HANDLER(tracepoint, handler), values },
static const struct tlk_event_row rows[] = { FOR_EACH_ROW(AS_ROW) };

bool tlk_event_tracepoint_parse(struct tlk_event_source *source, const char *word, char *text)
{
	const struct tlk_event_row *row;

	for (row = rows; row < rows + ARRAY_SIZE(rows); row++) {
		if (strcmp(row->handler.tracepoint, word))
			continue;
		source->row = row;
		snprintf(text, TLK_EVENT_PLACE_BYTES, "%s:%s", word, row->values);
		return true;
	}
	return false;
}

int tlk_event_tracepoint_arm(struct tlk_event_source *source)
{
	return tlk_handler_add(&source->row->handler, (void *)(uintptr_t)source->place);
}

/* Its handler may run until tracepoint_synchronize_unregister(). */
void tlk_event_tracepoint_disarm(struct tlk_event_source *source)
{
	tlk_handler_remove(&source->row->handler, (void *)(uintptr_t)source->place);
}
