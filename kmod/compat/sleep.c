// SPDX-License-Identifier: GPL-2.0-only
/*
 * Watches threads by the scheduler's notifiers. This file owns the notifiers and what counts as
 * sleep. On kernels without notifiers it does nothing, and sleep.h says so to those who ask.
 */
#include <linux/mutex.h>
#include <linux/sched.h>

#include "compat/sleep.h"

#ifdef CONFIG_PREEMPT_NOTIFIERS

/* Notifiers add a test to every switch of threads: they are enabled at their first use. */
static DEFINE_MUTEX(prepare_lock);
static bool prepared;

/*
 * A thread stores in its state that it will sleep, and then goes to sleep. If it is woken at this
 * moment, the state stays until the switch is over. A thread that is preempted between the two
 * looks the same: it is taken for one that sleeps, and soon runs again.
 */
static void sched_out(struct preempt_notifier *notifier, struct task_struct *next)
{
	struct tlk_sleep *sleep = container_of(notifier, struct tlk_sleep, notifier);

	if (get_current_state() == TASK_RUNNING)
		return;
	sleep->asleep = true;
	sleep->went(sleep);
}

static void sched_in(struct preempt_notifier *notifier, int cpu)
{
	struct tlk_sleep *sleep = container_of(notifier, struct tlk_sleep, notifier);

	if (!sleep->asleep)
		return;
	sleep->asleep = false;
	sleep->came(sleep);
}

static struct preempt_ops operations = {
	.sched_in = sched_in,
	.sched_out = sched_out,
};

void tlk_sleep_prepare(void)
{
	mutex_lock(&prepare_lock);
	if (!prepared)
		preempt_notifier_inc();
	prepared = true;
	mutex_unlock(&prepare_lock);
}

void tlk_sleep_exit(void)
{
	if (prepared)
		preempt_notifier_dec();
}

void tlk_sleep_watch(struct tlk_sleep *sleep)
{
	sleep->asleep = false;
	preempt_notifier_init(&sleep->notifier, &operations);
	preempt_disable();
	preempt_notifier_register(&sleep->notifier);
	preempt_enable();
}

void tlk_sleep_unwatch(struct tlk_sleep *sleep)
{
	preempt_disable();
	preempt_notifier_unregister(&sleep->notifier);
	preempt_enable();
}

#else

void tlk_sleep_prepare(void)
{
}

void tlk_sleep_exit(void)
{
}

void tlk_sleep_watch(struct tlk_sleep *sleep)
{
}

void tlk_sleep_unwatch(struct tlk_sleep *sleep)
{
}

#endif
