// SPDX-License-Identifier: GPL-2.0-only
/*
 * A kernel module that makes a guest hang in one of many ways, so that a test can ask from outside
 * why it hangs.
 *
 * Write the name of a hang to `seed` below /sys/module/hang/parameters, and "end" to let go what
 * can be let go. Each thread has the name that a test looks for. Outside a VM it does not load.
 */
#include <linux/completion.h>
#include <linux/cpufeature.h>
#include <linux/delay.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/of.h>
#include <linux/pagemap.h>
#include <linux/rcupdate.h>
#include <linux/rtmutex.h>
#include <linux/rwsem.h>
#include <linux/sched.h>
#include <linux/semaphore.h>
#include <linux/smp.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/timer.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#define LOCKS 3
#define SPUN_CPU 1
#define SPUN_S 60
#define SETTLE_MS 200

static DECLARE_WAIT_QUEUE_HEAD(ended);
static bool is_over;
static struct mutex locks[LOCKS];
static DECLARE_RWSEM(hang_rwsem);
static DEFINE_RT_MUTEX(hang_rt_mutex);
static struct semaphore hang_semaphore;
static DECLARE_COMPLETION(hang_event);
static struct page *hang_page;
static struct workqueue_struct *ordered;

static void until_end(void)
{
	wait_event_idle(ended, READ_ONCE(is_over));
}

static struct task_struct *
begin(int (*work)(void *), unsigned long number, const char *name, int cpu)
{
	struct task_struct *task = kthread_create(work, (void *)number, "%s", name);

	if (IS_ERR(task))
		return NULL;
	if (cpu >= 0) {
		/* Whoever asked is not to be held on that CPU as well. */
		set_cpus_allowed_ptr(current, cpumask_of(0));
		kthread_bind(task, cpu);
	}
	wake_up_process(task);
	msleep(SETTLE_MS);
	return task;
}

/* ---- Locks ---- */

static int hold_mutex(void *number)
{
	mutex_lock(&locks[(unsigned long)number]);
	until_end();
	mutex_unlock(&locks[(unsigned long)number]);
	return 0;
}

static int want_mutex(void *number)
{
	mutex_lock(&locks[(unsigned long)number]);
	mutex_unlock(&locks[(unsigned long)number]);
	return 0;
}

/* Takes a lock, and then the next one. `number` is the first one, and 16 times their count. */
static int take_two(void *number)
{
	unsigned long first = (unsigned long)number & 15, count = (unsigned long)number >> 4;

	mutex_lock(&locks[first]);
	msleep(SETTLE_MS * (LOCKS + 1));
	mutex_lock(&locks[(first + 1) % count]);
	until_end();
	mutex_unlock(&locks[(first + 1) % count]);
	mutex_unlock(&locks[first]);
	return 0;
}

/* Lets go what others hold: only kernels built to check their locks object. */
static void unlock_all(void)
{
	int i;

	for (i = 0; i < LOCKS; i++)
		if (mutex_is_locked(&locks[i]))
			mutex_unlock(&locks[i]);
}

static int hold_to_write(void *unused)
{
	down_write(&hang_rwsem);
	until_end();
	up_write(&hang_rwsem);
	return 0;
}

static int hold_to_read(void *unused)
{
	down_read(&hang_rwsem);
	until_end();
	up_read(&hang_rwsem);
	return 0;
}

/* The kernel notes this thread as the last reader then, though it does not read any more. */
static int read_then_write(void *unused)
{
	down_read(&hang_rwsem);
	up_read(&hang_rwsem);
	return hold_to_write(NULL);
}

/* Holds a mutex, and waits for the rwsem. */
static int chain(void *unused)
{
	mutex_lock(&locks[0]);
	down_read(&hang_rwsem);
	up_read(&hang_rwsem);
	mutex_unlock(&locks[0]);
	return 0;
}

static int hold_rt_mutex(void *unused)
{
	rt_mutex_lock(&hang_rt_mutex);
	until_end();
	rt_mutex_unlock(&hang_rt_mutex);
	return 0;
}

static int hold_semaphore(void *unused)
{
	down(&hang_semaphore);
	until_end();
	up(&hang_semaphore);
	return 0;
}

/* No hang: a driver that takes events, of which the first has come already. */
static int take_events(void *unused)
{
	while (!READ_ONCE(is_over))
		if (down_interruptible(&hang_semaphore))
			break;
	return 0;
}

static int want_event(void *unused)
{
	wait_for_completion(&hang_event);
	return 0;
}

static int want_page(void *unused)
{
	lock_page(hang_page);
	unlock_page(hang_page);
	return 0;
}

static int die_with_mutex(void *number)
{
	mutex_lock(&locks[0]);
	if (number)
		BUG();
	*(volatile int *)0x10 = 1;
	return 0;
}

/* Owner 0 is a mutex that nobody holds; the second is what mutex_unlock() then has to see. */
static void set_owner(struct mutex *lock, struct task_struct *task)
{
	atomic_long_set(&lock->owner, task ? (long)task | 1 : 0);
}

/* ---- CPUs ---- */

static int spin(void *unused)
{
	preempt_disable();
	while (!READ_ONCE(is_over))
		cpu_relax();
	preempt_enable();
	return 0;
}

static int spin_without_interrupts(void *unused)
{
	local_irq_disable();
	while (!READ_ONCE(is_over))
		cpu_relax();
	local_irq_enable();
	return 0;
}

static void spin_in_timer(struct timer_list *unused)
{
	while (!READ_ONCE(is_over))
		cpu_relax();
}

static DEFINE_TIMER(spinning_timer, spin_in_timer);

/* It ends by itself, since whoever would end it may wait for that CPU. */
static void spin_in_interrupt(void *unused)
{
	u64 end_ns = ktime_get_ns() + SPUN_S * NSEC_PER_SEC;

	while (!READ_ONCE(is_over) && ktime_get_ns() < end_ns)
		cpu_relax();
}

static DEFINE_SPINLOCK(hang_spinlock);

/* Whoever ends the hang gives the lock back. */
static int lock_twice(void *unused)
{
	spin_lock(&hang_spinlock);
	spin_lock(&hang_spinlock);
	spin_unlock(&hang_spinlock);
	return 0;
}

/* No hang: a driver that sleeps for long, blocked but by a timer. */
static int sleep_long(void *unused)
{
	while (!READ_ONCE(is_over))
		msleep(60000);
	return 0;
}

/* Nobody wakes it up, and no lock or event says who should. */
static int sleep_for_ever(void *unused)
{
	while (!READ_ONCE(is_over)) {
		set_current_state(TASK_UNINTERRUPTIBLE);
		if (!READ_ONCE(is_over))
			schedule();
	}
	__set_current_state(TASK_RUNNING);
	return 0;
}

static struct task_struct *sleeper, *stopped;

static int until_stopped(void *unused)
{
	until_end();
	while (!kthread_should_stop())
		msleep(SETTLE_MS / 10);
	return 0;
}

static int want_stop(void *unused)
{
	kthread_stop(stopped);
	return 0;
}

static int read_for_ever(void *unused)
{
	rcu_read_lock();
	until_end();
	rcu_read_unlock();
	return 0;
}

static int want_grace_period(void *unused)
{
	synchronize_rcu();
	return 0;
}

static int occupy(void *unused)
{
	sched_set_fifo(current);
	while (!READ_ONCE(is_over))
		cond_resched();
	return 0;
}

static int want_cpu(void *unused)
{
	return 0;
}

/* The thread exists before, since what makes threads may be on that CPU. */
static void starve_in_softirq(void)
{
	struct task_struct *task = kthread_create(want_cpu, NULL, "hang_starved");

	if (IS_ERR(task))
		return;
	kthread_bind(task, SPUN_CPU);
	set_cpus_allowed_ptr(current, cpumask_of(0));
	spinning_timer.expires = jiffies + 1;
	add_timer_on(&spinning_timer, SPUN_CPU);
	msleep(SETTLE_MS);
	wake_up_process(task);
}

/* ---- Work ---- */

static void wait_in_work(struct work_struct *work)
{
	wait_for_completion(&hang_event);
}

static void do_nothing(struct work_struct *work)
{
}

static DECLARE_WORK(first_work, wait_in_work);
static DECLARE_WORK(later_work, do_nothing);

static void flush_later(struct work_struct *work)
{
	flush_work(&later_work);
}

static DECLARE_WORK(flushing_work, flush_later);

/* ---- The choice ---- */

static void lock_hang(const char *name)
{
	if (!strcmp(name, "mutex")) {
		begin(hold_mutex, 0, "hang_holder", -1);
		begin(want_mutex, 0, "hang_waiter1", -1);
		begin(want_mutex, 0, "hang_waiter2", -1);
	} else if (!strcmp(name, "chain")) {
		begin(hold_to_write, 0, "hang_root", -1);
		begin(chain, 0, "hang_middle", -1);
		begin(want_mutex, 0, "hang_leaf", -1);
	} else if (!strcmp(name, "abba")) {
		begin(take_two, 0 | 2 << 4, "hang_ab", -1);
		begin(take_two, 1 | 2 << 4, "hang_ba", -1);
	} else if (!strcmp(name, "abbcca")) {
		begin(take_two, 0 | 3 << 4, "hang_ab", -1);
		begin(take_two, 1 | 3 << 4, "hang_bc", -1);
		begin(take_two, 2 | 3 << 4, "hang_ca", -1);
	} else if (!strcmp(name, "itself")) {
		begin(take_two, 0 | 1 << 4, "hang_itself", -1);
	} else if (!strcmp(name, "rwsem_written")) {
		begin(hold_to_write, 0, "hang_writer", -1);
		begin(hold_to_read, 0, "hang_reader", -1);
	} else if (!strcmp(name, "rwsem_read")) {
		begin(hold_to_read, 0, "hang_reader", -1);
		begin(hold_to_write, 0, "hang_writer", -1);
	} else if (!strcmp(name, "rwsem_shared")) {
		begin(hold_to_read, 0, "hang_reader", -1);
		begin(read_then_write, 0, "hang_writer", -1);
	} else if (!strcmp(name, "rt_mutex")) {
		begin(hold_rt_mutex, 0, "hang_holder", -1);
		begin(hold_rt_mutex, 0, "hang_waiter", -1);
	} else if (!strcmp(name, "semaphore")) {
		begin(hold_semaphore, 0, "hang_holder", -1);
		begin(hold_semaphore, 0, "hang_waiter", -1);
	} else if (!strcmp(name, "events")) {
		begin(take_events, 0, "hang_driver", -1);
	} else if (!strcmp(name, "lost_wakeup")) {
		mutex_lock(&locks[0]);
		begin(want_mutex, 0, "hang_waiter", -1);
		set_owner(&locks[0], NULL);
	} else if (!strcmp(name, "oops") || !strcmp(name, "bug")) {
		begin(die_with_mutex, !strcmp(name, "bug"), "hang_victim", -1);
		begin(want_mutex, 0, "hang_waiter", -1);
	}
}

static void other_hang(const char *name)
{
	if (!strcmp(name, "event")) {
		begin(want_event, 0, "hang_waiter", -1);
	} else if (!strcmp(name, "page")) {
		lock_page(hang_page);
		begin(want_page, 0, "hang_waiter", -1);
	} else if (!strcmp(name, "work")) {
		queue_work(ordered, &first_work);
		queue_work(ordered, &later_work);
	} else if (!strcmp(name, "flush")) {
		queue_work(ordered, &flushing_work);
		queue_work(ordered, &later_work);
	} else if (!strcmp(name, "spin")) {
		begin(spin, 0, "hang_spinner", SPUN_CPU);
	} else if (!strcmp(name, "interrupts")) {
		begin(spin_without_interrupts, 0, "hang_spinner", SPUN_CPU);
	} else if (!strcmp(name, "softirq")) {
		starve_in_softirq();
	} else if (!strcmp(name, "interrupt")) {
		set_cpus_allowed_ptr(current, cpumask_of(0));
		smp_call_function_single(SPUN_CPU, spin_in_interrupt, NULL, 0);
	} else if (!strcmp(name, "spinlock")) {
		begin(lock_twice, 0, "hang_spinner", SPUN_CPU);
	} else if (!strcmp(name, "asleep_for_ever")) {
		sleeper = begin(sleep_for_ever, 0, "hang_waiter", -1);
	} else if (!strcmp(name, "stop")) {
		stopped = begin(until_stopped, 0, "hang_worker", -1);
		begin(want_stop, 0, "hang_stopper", -1);
	} else if (!strcmp(name, "interrupts_all")) {
		spin_without_interrupts(NULL);
	} else if (!strcmp(name, "rcu")) {
		begin(read_for_ever, 0, "hang_reader", -1);
		begin(want_grace_period, 0, "hang_waiter", -1);
	} else if (!strcmp(name, "asleep")) {
		begin(sleep_long, 0, "hang_asleep", -1);
	} else if (!strcmp(name, "starve")) {
		begin(occupy, 0, "hang_occupier", SPUN_CPU);
		begin(want_cpu, 0, "hang_starved", SPUN_CPU);
	}
}

static void end(void)
{
	WRITE_ONCE(is_over, true);
	wake_up_all(&ended);
	up(&hang_semaphore);
	if (sleeper)
		wake_up_process(sleeper);
	sleeper = NULL;
	if (spin_is_locked(&hang_spinlock))
		spin_unlock(&hang_spinlock);
	msleep(SETTLE_MS);
	if (!atomic_long_read(&locks[0].owner))
		set_owner(&locks[0], current);
	unlock_all();
	msleep(SETTLE_MS);
	unlock_all();
	complete_all(&hang_event);
	if (PageLocked(hang_page))
		unlock_page(hang_page);
	msleep(SETTLE_MS);
	reinit_completion(&hang_event);
}

static void make_locks(void)
{
	int i;

	for (i = 0; i < LOCKS; i++)
		mutex_init(&locks[i]);
	sema_init(&hang_semaphore, 1);
}

static int set_seed(const char *value, const struct kernel_param *parameter)
{
	char name[32];

	strscpy(name, value, sizeof(name));
	if (!strcmp(strim(name), "end")) {
		end();
		return 0;
	}
	WRITE_ONCE(is_over, false);
	make_locks();
	lock_hang(strim(name));
	other_hang(strim(name));
	return 0;
}

static const struct kernel_param_ops seed_ops = { .set = set_seed };

module_param_cb(seed, &seed_ops, NULL, 0200);
MODULE_PARM_DESC(seed, "the hang to make, or end");

static int __init hang_init(void)
{
#ifdef CONFIG_X86
	if (!boot_cpu_has(X86_FEATURE_HYPERVISOR))
#else
	if (!of_machine_is_compatible("linux,dummy-virt"))
#endif
		return -EPERM;
	make_locks();
	hang_page = alloc_page(GFP_KERNEL);
	ordered = alloc_ordered_workqueue("hang_ordered", 0);
	return hang_page && ordered ? 0 : -ENOMEM;
}

module_init(hang_init);
MODULE_DESCRIPTION("Makes a guest hang, for tests of peek why");
MODULE_LICENSE("GPL");
