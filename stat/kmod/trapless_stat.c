// SPDX-License-Identifier: GPL-2.0-only
/*
 * trapless_stat.c - splits what the model counts by whose work it is: that of a control group (a
 * program with all that it started), of the idle task, or of any other task. Where the scheduler
 * goes from one of them to another, the module ends the model's region, changes the lowest 12 bits
 * of the label and begins the next region. It also counts what the ledger of crossings cannot see:
 * processes begun and ended, programs executed, signals delivered, page faults, and calls in which
 * a thread left the processor. While the program runs uncounted, a probe counts the calls that find
 * work to do on their way out. The numbers in labels are those of stat_labels.h.
 *
 * The guest has one processor, as the model follows one. That processor alone writes all of this,
 * with interrupts off; the counts of events are written in the context of their own task.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cgroup.h>
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
#include <asm/processor.h>

#include <trapless_model.h>

#include "stat_labels.h"

/* Whose work the processor does. */
enum group {
	GROUP_OTHER = STAT_OTHER,
	GROUP_PROGRAM = STAT_PROGRAM,
	GROUP_IDLE = STAT_IDLE,
};

static unsigned long long cgroup;
module_param(cgroup, ullong, 0444);
MODULE_PARM_DESC(cgroup, "ID of the program's control group, its folder's inode number");

static bool counting;
static unsigned int phase;
static enum group running; /* whose region is open */

/* The program's events since counting began. */
static struct {
#define COUNT(event) u64 event;
	STAT_EVENTS(COUNT)
#undef COUNT
} counts;

/* Whether the task is in the program's control group, or in a group below it. */
static bool is_in_program(struct task_struct *task)
{
	struct cgroup *at;
	bool member = false;

	rcu_read_lock();
	for (at = task_dfl_cgroup(task); at && !member; at = cgroup_parent(at))
		member = cgroup_id(at) == cgroup;
	rcu_read_unlock();
	return member;
}

static enum group group_of(struct task_struct *task)
{
	if (is_idle_task(task))
		return GROUP_IDLE;
	return is_in_program(task) ? GROUP_PROGRAM : GROUP_OTHER;
}

static void begin(enum group group)
{
	running = group;
	tl_model_label_nibble(phase >> 4);
	tl_model_label_nibble(phase);
	tl_model_label_nibble(group | (phase ? STAT_PHASE : 0));
	tl_model_begin();
}

/* An interrupt or exception leaves a negative number where a system call has its own. */
static bool is_in_call(struct task_struct *task)
{
	return (long)task_pt_regs(task)->orig_ax >= 0;
}

static void count_leaving(struct task_struct *prev, bool sleeps, enum group next)
{
	if (!is_in_call(prev))
		return;
	if (!sleeps)
		counts.preempted++;
	else if (next == GROUP_PROGRAM)
		counts.slept_within++;
	else
		counts.slept_out++;
}

/* Runs in the task that leaves, with interrupts off. */
static void on_switch(void *data, bool preempt, struct task_struct *prev, struct task_struct *next,
		      unsigned int prev_state)
{
	enum group group;

	if (!counting)
		return;
	group = group_of(next);
	if (running == GROUP_PROGRAM)
		count_leaving(prev, !preempt && prev_state, group);
	if (group == running)
		return;
	tl_model_end();
	begin(group);
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
}

static void on_signal(void *data, int signal)
{
	if (counts_current())
		counts.signals++;
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

/* The page faults of those threads of the program that still live. */
static u64 faults_so_far(void)
{
	struct task_struct *process, *thread;
	u64 sum = 0;

	rcu_read_lock();
	for_each_process_thread(process, thread)
		if (is_in_program(thread) && !thread->exit_state)
			sum += thread->min_flt + thread->maj_flt;
	rcu_read_unlock();
	return sum;
}

static int counting_set(const char *text, const struct kernel_param *parameter)
{
	unsigned long flags;
	int wanted, error = kstrtoint(text, 0, &wanted);
	u64 faults;

	if (error)
		return error;
	if (wanted > STAT_PHASE_MAX)
		return -EINVAL;
	faults = faults_so_far();
	local_irq_save(flags);
	if (wanted >= 0 && !counting) {
		memset(&counts, 0, sizeof(counts));
		counts.page_faults = -faults;
		phase = wanted;
		counting = true;
		begin(group_of(current));
	} else if (wanted < 0 && counting) {
		tl_model_end();
		counting = false;
		counts.page_faults += faults;
	}
	local_irq_restore(flags);
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

/*
 * Calls with work on their way out. The probe costs instructions, so it is never set while the
 * program is counted.
 */

static bool watching;
static unsigned long worked;
module_param(worked, ulong, 0400);
MODULE_PARM_DESC(worked, "calls of the program that found work on their way out, while watched");

static int on_work(struct kprobe *probe, struct pt_regs *regs)
{
	if (is_in_call(current) && !(current->flags & PF_EXITING) && is_in_program(current))
		worked++;
	return 0;
}

static struct kprobe work = { .symbol_name = "task_work_run", .pre_handler = on_work };

static int watching_set(const char *text, const struct kernel_param *parameter)
{
	bool on;
	int error = kstrtobool(text, &on);

	if (error || on == watching)
		return error;
	if (on) {
		worked = 0;
		work.addr = NULL;
		work.flags = 0;
		error = register_kprobe(&work);
	} else {
		unregister_kprobe(&work);
	}
	if (!error)
		watching = on;
	return error;
}

static int watching_get(char *text, const struct kernel_param *parameter)
{
	return sysfs_emit(text, "%d\n", watching);
}

static const struct kernel_param_ops watching_ops = { .set = watching_set, .get = watching_get };
module_param_cb(watching, &watching_ops, NULL, 0600);
MODULE_PARM_DESC(watching, "whether calls with work on their way out are counted");

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
}

static void unhook(unsigned int count)
{
	while (count--)
		tracepoint_probe_unregister(hooks[count].tracepoint, hooks[count].handler, NULL);
	tracepoint_synchronize_unregister();
}

static int __init stat_init(void)
{
	unsigned int i;
	int error;

	if (!cgroup) {
		pr_err("cgroup=0: give the inode number of a folder of the cgroup2 file system\n");
		return -EINVAL;
	}
	if (num_online_cpus() != 1) {
		pr_err("%u processors: the model follows one\n", num_online_cpus());
		return -EOPNOTSUPP;
	}
	for_each_kernel_tracepoint(find, NULL);
	for (i = 0; i < ARRAY_SIZE(hooks); i++) {
		error = hooks[i].tracepoint ? tracepoint_probe_register(hooks[i].tracepoint,
									hooks[i].handler, NULL) :
					      -ENOENT;
		if (!error)
			continue;
		pr_err("this kernel has no tracepoint %s\n", hooks[i].name);
		unhook(i);
		return error;
	}
	return 0;
}

/* Ends an open region, so that no region begins in code that is about to go. */
static void __exit stat_exit(void)
{
	unhook(ARRAY_SIZE(hooks));
	if (watching)
		unregister_kprobe(&work);
	if (counting)
		tl_model_end();
}

module_init(stat_init);
module_exit(stat_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("tells Trapless's model whose work the guest's processor does");
