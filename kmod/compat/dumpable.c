// SPDX-License-Identifier: GPL-2.0-only
/*
 * Closes processes to their own users, and opens them again. See dumpable.h.
 *
 * The value for closed is that of a process whose core dumps belong to root: core dumps go on being
 * written, where /proc/sys/kernel/core_pattern names a pipe or a whole path. The kernel sets the
 * same value for a process that changes its credentials if fs.suid_dumpable is 2: nobody can tell
 * then who has closed it, so there it stays closed.
 */
#include <linux/binfmts.h>
#include <linux/errno.h>
#include <linux/init.h>
#include <linux/sched.h>
#include <linux/sched/coredump.h>
#include <linux/sched/mm.h>
#include <linux/static_call.h>
#if __has_include(<linux/sched/exec_state.h>)
#include <linux/sched/exec_state.h>
#define HAS_EXEC_STATE
#endif

#include "compat/dumpable.h"
#include "compat/symbols.h"

#define OPEN 1		/* SUID_DUMP_USER, by whichever name */
#define CLOSED 2	/* SUID_DUMP_ROOT */

static const int *suid_value __ro_after_init;

#ifdef HAS_EXEC_STATE

static void no_put(struct task_exec_state *state)
{
}

DEFINE_STATIC_CALL(put_state, no_put);

static int __init find_functions(void)
{
	void *address = tlk_symbol("put_task_exec_state");

	if (!address)
		return -ENOENT;
	static_call_update(put_state, address);
	return 0;
}

static struct task_exec_state *state_of(const struct tlk_closed *closed)
{
	return (struct task_exec_state *)closed;
}

static struct tlk_closed *closed_get(struct task_struct *task)
{
	struct task_exec_state *state;

	rcu_read_lock();
	state = rcu_dereference(task->exec_state);
	if (state && !refcount_inc_not_zero(&state->count))
		state = NULL;
	rcu_read_unlock();
	return (struct tlk_closed *)state;
}

static void closed_put(struct tlk_closed *closed)
{
	static_call(put_state)(state_of(closed));
}

static int value_get(const struct tlk_closed *closed)
{
	return READ_ONCE(state_of(closed)->dumpable);
}

static void value_set(struct tlk_closed *closed, int value)
{
	WRITE_ONCE(state_of(closed)->dumpable, value);
}

#else

static void no_set(struct mm_struct *mm, int value)
{
}

DEFINE_STATIC_CALL(set_value, no_set);

static int __init find_functions(void)
{
	void *address = tlk_symbol("set_dumpable");

	if (!address)
		return -ENOENT;
	static_call_update(set_value, address);
	return 0;
}

static struct mm_struct *mm_of(const struct tlk_closed *closed)
{
	return (struct mm_struct *)closed;
}

/* The task is current, or a child that has not run yet: its memory map stays. */
static struct tlk_closed *closed_get(struct task_struct *task)
{
	if (task->mm)
		mmgrab(task->mm);
	return (struct tlk_closed *)task->mm;
}

static void closed_put(struct tlk_closed *closed)
{
	mmdrop(mm_of(closed));
}

static int value_get(const struct tlk_closed *closed)
{
	return get_dumpable(mm_of(closed));
}

static void value_set(struct tlk_closed *closed, int value)
{
	static_call(set_value)(mm_of(closed), value);
}

#endif /* HAS_EXEC_STATE */

int __init tlk_dumpable_init(void)
{
	suid_value = tlk_symbol("suid_dumpable");
	return suid_value ? find_functions() : -ENOENT;
}

struct tlk_closed *tlk_dumpable_close(void)
{
	struct tlk_closed *closed = closed_get(current);

	if (!closed)
		return NULL;
	if (value_get(closed) != OPEN) {
		closed_put(closed);
		return NULL;
	}
	value_set(closed, CLOSED);
	return closed;
}

void tlk_dumpable_open(struct tlk_closed *closed)
{
	if (value_get(closed) == CLOSED && READ_ONCE(*suid_value) != CLOSED)
		value_set(closed, OPEN);
	closed_put(closed);
}

struct tlk_closed *tlk_dumpable_of_child(struct task_struct *child,
					  const struct tlk_closed *closed)
{
	struct tlk_closed *own = closed_get(child);

	if (own && own == closed) {
		closed_put(own);
		own = NULL;
	}
	return own;
}
