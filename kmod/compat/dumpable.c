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
#include <linux/list.h>
#include <linux/sched.h>
#include <linux/sched/coredump.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/static_call.h>
#if __has_include(<linux/sched/exec_state.h>)
#include <linux/sched/exec_state.h>
#define HAS_EXEC_STATE
#endif

#include "compat/dumpable.h"
#include "compat/symbols.h"
#include "compat/task.h"

#define OPEN 1		/* SUID_DUMP_USER, by whichever name */
#define CLOSED 2	/* SUID_DUMP_ROOT */

struct tlk_closed {
	struct list_head link;		/* in all_closed */
	void *keeper;			/* of the value, with a reference: see keeper_get() */
	unsigned int holders;		/* processes that share it and are to be closed */
};

static LIST_HEAD(all_closed);
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

static void *keeper_get(struct task_struct *task)
{
	struct task_exec_state *state;

	rcu_read_lock();
	state = rcu_dereference(task->exec_state);
	if (state && !refcount_inc_not_zero(&state->count))
		state = NULL;
	rcu_read_unlock();
	return state;
}

static void keeper_put(void *keeper)
{
	static_call(put_state)(keeper);
}

static int value_get(void *keeper)
{
	const struct task_exec_state *state = keeper;

	return READ_ONCE(state->dumpable);
}

static void value_set(void *keeper, int value)
{
	struct task_exec_state *state = keeper;

	WRITE_ONCE(state->dumpable, value);
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

static void *keeper_get(struct task_struct *task)
{
	return tlk_memory_grab(task);
}

static void keeper_put(void *keeper)
{
	mmdrop(keeper);
}

static int value_get(void *keeper)
{
	return get_dumpable(keeper);
}

static void value_set(void *keeper, int value)
{
	static_call(set_value)(keeper, value);
}

#endif /* HAS_EXEC_STATE */

int __init tlk_dumpable_init(void)
{
	suid_value = tlk_symbol("suid_dumpable");
	return suid_value ? find_functions() : -ENOENT;
}

/* The process has a reference to its keeper, which it gives away. */
static struct tlk_closed *closed_make(void *keeper)
{
	struct tlk_closed *closed = kmalloc(sizeof(*closed), GFP_ATOMIC | __GFP_NOWARN);

	if (!closed) {
		keeper_put(keeper);
		return NULL;
	}
	closed->keeper = keeper;
	closed->holders = 1;
	list_add(&closed->link, &all_closed);
	return closed;
}

static struct tlk_closed *closed_find(const void *keeper)
{
	struct tlk_closed *closed;

	list_for_each_entry(closed, &all_closed, link)
		if (closed->keeper == keeper)
			return closed;
	return NULL;
}

/* Another process with this memory may have closed it, and this one may have opened it since. */
struct tlk_closed *tlk_dumpable_close(struct task_struct *task)
{
	void *keeper = keeper_get(task);
	struct tlk_closed *closed;
	bool was_open;

	if (!keeper)
		return NULL;
	was_open = value_get(keeper) == OPEN;
	if (was_open)
		value_set(keeper, CLOSED);
	closed = closed_find(keeper);
	if (!closed && was_open)
		return closed_make(keeper);
	if (closed)
		closed->holders++;
	keeper_put(keeper);
	return closed;
}

void tlk_dumpable_open(struct tlk_closed *closed)
{
	if (--closed->holders)
		return;
	if (value_get(closed->keeper) == CLOSED && READ_ONCE(*suid_value) != CLOSED)
		value_set(closed->keeper, OPEN);
	keeper_put(closed->keeper);
	list_del(&closed->link);
	kfree(closed);
}

struct tlk_closed *tlk_dumpable_of_child(struct task_struct *child, struct tlk_closed *closed)
{
	void *keeper = keeper_get(child);

	if (!keeper)
		return NULL;
	if (keeper != closed->keeper && value_get(keeper) == CLOSED)
		return closed_make(keeper);
	keeper_put(keeper);
	if (keeper != closed->keeper)
		return NULL;
	closed->holders++;
	return closed;
}
