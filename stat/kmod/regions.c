// SPDX-License-Identifier: GPL-2.0-only
/*
 * Splits the model's counts by the owner of the work: a control group (a program with all that it
 * started), the idle task, or any other task. When the scheduler switches from one owner to
 * another, the module ends the model's region, changes the lowest 12 bits of the label and begins
 * the next region. While calls are told apart, each begins a region of its own. It also counts what
 * the ledger of crossings cannot see: processes begun and ended, programs executed, signals
 * delivered, page faults, requests for files of the machine that runs the guest, and calls in which
 * a thread left the processor. work.c owns calls that find work on their way out, scans.c those on
 * names of directories, owner.c who belongs to the program. The numbers in labels are those of
 * stat_labels.h.
 *
 * The guest has one processor, as the model follows one. That processor alone writes all of this,
 * with interrupts off; the counts of events are written in the context of their own task.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/bitmap.h>
#include <linux/cpumask.h>
#include <linux/irqflags.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/rcupdate.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/sched/task_stack.h>
#include <linux/string.h>
#include <linux/tracepoint.h>
#include <asm/ptrace.h>
#include <asm/unistd.h>
#include <asm/processor.h>

#include <trapless_model.h>

#include "owner.h"
#include "stat_labels.h"

/* The owner of the processor's work. */
enum group {
	GROUP_OTHER = STAT_OTHER,
	GROUP_PROGRAM = STAT_PROGRAM,
	GROUP_IDLE = STAT_IDLE,
};

#define THREADS_MAX 4096 /* bits; two threads whose numbers differ by that much share one */

static bool counting;
static bool tracing; /* calls are told apart */
static unsigned int phase;
static enum group running; /* whose region is open */

/* The program's events since counting began. */
static struct {
#define COUNT(event) u64 event;
	STAT_EVENTS(COUNT)
#undef COUNT
} counts;

static enum group group_of(struct task_struct *task)
{
	if (is_idle_task(task))
		return GROUP_IDLE;
	return is_in_program(task) ? GROUP_PROGRAM : GROUP_OTHER;
}

static void label(enum group group, unsigned int part, unsigned int call)
{
	if (tracing) {
		tl_model_label_nibble(call >> 8);
		tl_model_label_nibble(call >> 4);
		tl_model_label_nibble(call);
		tl_model_label_nibble(part);
	}
	tl_model_label_nibble(phase >> 4);
	tl_model_label_nibble(phase);
	tl_model_label_nibble(group | (phase ? STAT_PHASE : 0));
}

static unsigned int call_of(struct task_struct *task)
{
	unsigned long call = task_pt_regs(task)->orig_ax;
	bool unknown = is_call_of_32_bits(task) || call > STAT_CALL_UNKNOWN;

	return unknown ? STAT_CALL_UNKNOWN : call;
}

/* Begins the region of what `task`, of that group, does now. */
static void begin(enum group group, struct task_struct *task)
{
	running = group;
	if (tracing && group == GROUP_PROGRAM && is_in_call(task))
		label(group, STAT_PART_RESUMED, call_of(task));
	else
		label(group, STAT_PART_NONE, 0);
	tl_model_begin();
}

/* An event of a call of `task`, between two regions. */
static void event(struct task_struct *task, unsigned int part)
{
	label(GROUP_PROGRAM, part, call_of(task));
	tl_model_begin();
	tl_model_end();
}

/*
 * Whether a task that leaves the processor has left it before in the same call: its floating-point
 * registers are loaded again on the way out, so there is work on that way already.
 */
static bool leaves_again(struct task_struct *task)
{
	return is_in_call(task) && test_tsk_thread_flag(task, TIF_NEED_FPU_LOAD);
}

/*
 * Counts a call in which `prev` leaves the processor. Returns which part of a call that is. In the
 * middle of a call, the scheduler's tracepoint tells a preemption; on the way out of a call it does
 * not, because the exit work calls the scheduler as any other code does.
 */
static unsigned int count_leaving(struct task_struct *prev, bool preempt, bool sleeps,
				  enum group next)
{
	if (!is_in_call(prev))
		return STAT_PART_NONE;
	if (leaves_again(prev))
		counts.left_again++;
	if (preempt || (!sleeps && call_of(prev) == __NR_sched_yield)) {
		counts.preempted_within++;
		return STAT_PART_PREEMPTED;
	}
	if (!sleeps) {
		counts.preempted++;
		return STAT_PART_PREEMPTED;
	}
	if (next == GROUP_PROGRAM) {
		counts.slept_within++;
		return STAT_PART_SLEPT_WITHIN;
	}
	counts.slept_out++;
	return STAT_PART_SLEPT_OUT;
}

/* Runs in the task that leaves, with interrupts off. */
static void on_switch(void *data, bool preempt, struct task_struct *prev, struct task_struct *next,
		      unsigned int prev_state)
{
	unsigned int part = STAT_PART_NONE;
	enum group group;

	if (!counting)
		return;
	group = group_of(next);
	if (running == GROUP_PROGRAM)
		part = count_leaving(prev, preempt, !preempt && prev_state, group);
	if (group == running && !(tracing && group == GROUP_PROGRAM))
		return;
	tl_model_end();
	if (tracing && part != STAT_PART_NONE) {
		event(prev, part);
		if (leaves_again(prev))
			event(prev, STAT_PART_LEFT_AGAIN);
	}
	begin(group, next);
}

static bool counts_current(void)
{
	return counting && is_in_program(current);
}

static void on_fork(void *data, struct task_struct *parent, struct task_struct *child)
{
	if (counts_current())
		counts.forks++;
}

static void on_exec(void *data, struct task_struct *task, pid_t old_pid, struct linux_binprm *bprm)
{
	if (counts_current())
		counts.execs++;
}

static void on_exit(void *data, struct task_struct *task)
{
	if (!counts_current())
		return;
	counts.exits++;
	counts.page_faults += task->min_flt + task->maj_flt;
	counts.file_faults += task->maj_flt;
}

static void on_signal(void *data, int signal)
{
	if (counts_current())
		counts.signals++;
}

/*
 * Calls told apart: each entry of a call begins a region. Nothing in between depends on the call,
 * so telling calls apart adds the same to each. Interrupts are off in between, as a switch would
 * end a region that is not open.
 */

static DECLARE_BITMAP(shared, THREADS_MAX); /* threads that asked for a file in their call */

static void on_call(void *data, struct pt_regs *regs, long number)
{
	unsigned long flags;

	if (!counting || running != GROUP_PROGRAM)
		return;
	local_irq_save(flags);
	tl_model_end();
	__clear_bit(current->pid % THREADS_MAX, shared);
	label(GROUP_PROGRAM, STAT_PART_ENTERED, call_of(current));
	tl_model_begin();
	local_irq_restore(flags);
}

/* An event of the current call, in the middle of its region. */
static void split(unsigned int part)
{
	unsigned long flags;

	local_irq_save(flags);
	tl_model_end();
	event(current, part);
	begin(GROUP_PROGRAM, current);
	local_irq_restore(flags);
}

static void on_return(void *data, struct pt_regs *regs, long result)
{
	unsigned long flags;

	if (!counting || running != GROUP_PROGRAM)
		return;
	if (IS_ERR_VALUE(result)) {
		split(STAT_PART_FAILED);
	} else if (scans_concern(regs)) {
		local_irq_save(flags);
		tl_model_end();
		scans_note(regs, result, &counts.names, &counts.name_stats);
		begin(GROUP_PROGRAM, current);
		local_irq_restore(flags);
	}
}

/* A handler may take fewer arguments than its tracepoint gives. */
static struct hook {
	const char *name;
	void *handler;
	struct tracepoint *tracepoint;
} hooks[] = {
	{ "sched_switch", on_switch },
	{ "sched_process_fork", on_fork },
	{ "sched_process_exec", on_exec },
	{ "sched_process_exit", on_exit },
	{ "signal_deliver", on_signal },
};

static struct hook call_hooks[] = {
	{ "sys_enter", on_call },
	{ "sys_exit", on_return },
};

/* Files of the machine that runs the guest come by 9p: each request waits for an answer. */
static int on_request(struct kprobe *probe, struct pt_regs *regs)
{
	if (!counts_current())
		return 0;
	counts.shared++;
	if (tracing && is_in_call(current) &&
	    !__test_and_set_bit(current->pid % THREADS_MAX, shared))
		split(STAT_PART_SHARED);
	return 0;
}

static struct kprobe requests[] = {
	{ .symbol_name = "p9_client_rpc", .pre_handler = on_request },
	{ .symbol_name = "p9_client_zc_rpc", .pre_handler = on_request },
};

/* Adds the page faults of those threads of the program that still live, `sign` times. */
static void add_faults(int sign)
{
	struct task_struct *process, *thread;

	rcu_read_lock();
	for_each_process_thread(process, thread)
		if (is_in_program(thread) && !thread->exit_state) {
			counts.page_faults += sign * (thread->min_flt + thread->maj_flt);
			counts.file_faults += sign * thread->maj_flt;
		}
	rcu_read_unlock();
}

static int counting_set(const char *text, const struct kernel_param *parameter)
{
	unsigned long flags;
	int wanted, error = kstrtoint(text, 0, &wanted);

	if (error)
		return error;
	if (wanted > STAT_PHASE_MAX)
		return -EINVAL;
	if (wanted >= 0 && !counting) {
		memset(&counts, 0, sizeof(counts));
		add_faults(-1);
		local_irq_save(flags);
		phase = wanted;
		counting = true;
		running = group_of(current);
		/* This call began uncounted, so it is none of those that are told apart. */
		label(running, STAT_PART_NONE, 0);
		tl_model_begin();
		local_irq_restore(flags);
	} else if (wanted < 0 && counting) {
		local_irq_save(flags);
		tl_model_end();
		counting = false;
		local_irq_restore(flags);
		add_faults(1);
	}
	return 0;
}

static int counting_get(char *text, const struct kernel_param *parameter)
{
	return sysfs_emit(text, "%d\n", counting ? (int)phase : -1);
}

static int counts_get(char *text, const struct kernel_param *parameter)
{
	int length = 0;

#define EMIT(event) length += sysfs_emit_at(text, length, "%llu ", counts.event);
	STAT_EVENTS(EMIT)
#undef EMIT
	return length + sysfs_emit_at(text, length, "\n");
}

static const struct kernel_param_ops counting_ops = { .set = counting_set, .get = counting_get };
module_param_cb(counting, &counting_ops, NULL, 0600);
MODULE_PARM_DESC(counting, "the phase whose regions are begun and ended, 0 to 255; -1: none");

static const struct kernel_param_ops counts_ops = { .get = counts_get };
module_param_cb(counts, &counts_ops, NULL, 0400);
#define NAME(event) " " #event
MODULE_PARM_DESC(counts, "events of the program:" STAT_EVENTS(NAME));
#undef NAME

static void find(struct tracepoint *tracepoint, void *data)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(hooks); i++)
		if (!strcmp(tracepoint->name, hooks[i].name))
			hooks[i].tracepoint = tracepoint;
	for (i = 0; i < ARRAY_SIZE(call_hooks); i++)
		if (!strcmp(tracepoint->name, call_hooks[i].name))
			call_hooks[i].tracepoint = tracepoint;
}

static void unhook(struct hook *from, unsigned int count)
{
	while (count--)
		tracepoint_probe_unregister(from[count].tracepoint, from[count].handler, NULL);
	tracepoint_synchronize_unregister();
}

static int hook_all(struct hook *to, unsigned int count)
{
	unsigned int i;
	int error;

	for (i = 0; i < count; i++) {
		error = to[i].tracepoint ? tracepoint_probe_register(to[i].tracepoint,
								     to[i].handler, NULL) :
					   -ENOENT;
		if (!error)
			continue;
		pr_err("this kernel has no tracepoint %s\n", to[i].name);
		unhook(to, i);
		return error;
	}
	return 0;
}

static void end_tracing(void)
{
	unhook(call_hooks, ARRAY_SIZE(call_hooks));
	scans_end();
}

static int tracing_set(const char *text, const struct kernel_param *parameter)
{
	bool on;
	int error = kstrtobool(text, &on);

	if (error || on == tracing)
		return error;
	if (counting)
		return -EBUSY;
	if (!on)
		end_tracing();
	else
		error = scans_begin() ?: hook_all(call_hooks, ARRAY_SIZE(call_hooks));
	if (on && error)
		scans_end();
	if (!error)
		tracing = on;
	return error;
}

static int tracing_get(char *text, const struct kernel_param *parameter)
{
	return sysfs_emit(text, "%d\n", tracing);
}

static const struct kernel_param_ops tracing_ops = { .set = tracing_set, .get = tracing_get };
module_param_cb(tracing, &tracing_ops, NULL, 0600);
MODULE_PARM_DESC(tracing, "whether calls are told apart");

static int __init stat_init(void)
{
	unsigned int i;
	int error;

	if (!program_is_named()) {
		pr_err("cgroup=0: give the inode number of a folder of the cgroup2 file system\n");
		return -EINVAL;
	}
	if (num_online_cpus() != 1) {
		pr_err("%u processors: the model follows one\n", num_online_cpus());
		return -EOPNOTSUPP;
	}
	for_each_kernel_tracepoint(find, NULL);
	error = hook_all(hooks, ARRAY_SIZE(hooks));
	if (error)
		return error;
	/* Without the share there is nothing to probe. */
	for (i = 0; i < ARRAY_SIZE(requests); i++)
		if (register_kprobe(&requests[i]))
			requests[i].addr = NULL;
	return 0;
}

/* Ends an open region, so that no region begins in code that is about to go. */
static void __exit stat_exit(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(requests); i++)
		if (requests[i].addr)
			unregister_kprobe(&requests[i]);
	unhook(hooks, ARRAY_SIZE(hooks));
	if (tracing)
		end_tracing();
	work_exit();
	if (counting)
		tl_model_end();
}

module_init(stat_init);
module_exit(stat_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("tells Trapless's model whose work the guest's processor does");
