// SPDX-License-Identifier: GPL-2.0-only
/*
 * Closes processes to their own users, and opens them again. See dumpable.h.
 *
 * The value for closed is that of a process whose core dumps belong to root: core dumps are still
 * written, where /proc/sys/kernel/core_pattern names a pipe or a whole path. If fs.suid_dumpable is
 * 2, the kernel sets the same value for a process that changes its credentials. Then nobody can
 * tell who closed the process, so it stays closed.
 */
#include <linux/atomic.h>
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
	bool was_open;			/* so it is to be opened again */
};

static LIST_HEAD(all_closed);
static const int *suid_value __ro_after_init;

#ifdef HAS_EXEC_STATE

static void no_put(struct task_exec_state *state)
{
}

TLK_CHECK_STAND_IN(put_task_exec_state, no_put);

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

static bool value_change(void *keeper, int from, int to)
{
	struct task_exec_state *state = keeper;

	return cmpxchg(&state->dumpable, from, to) == from;
}

#else

static int __init find_functions(void)
{
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

/* The value is the lowest bits of flags, which others change meanwhile. */
static bool value_change(void *keeper, int from, int to)
{
	unsigned long *flags = (unsigned long *)&((struct mm_struct *)keeper)->flags;
	unsigned long old = READ_ONCE(*flags);

	do {
		if ((old & MMF_DUMPABLE_MASK) != from)
			return false;
	} while (!try_cmpxchg(flags, &old, (old & ~(unsigned long)MMF_DUMPABLE_MASK) | to));
	return true;
}

#endif /* HAS_EXEC_STATE */

int __init tlk_dumpable_init(void)
{
	suid_value = tlk_symbol("suid_dumpable");
	return suid_value ? find_functions() : -ENOENT;
}

static struct tlk_closed *closed_find(const void *keeper)
{
	struct tlk_closed *closed;

	list_for_each_entry(closed, &all_closed, link)
		if (closed->keeper == keeper)
			return closed;
	return NULL;
}

/* The caller has a reference to the keeper, which it gives away. */
static struct tlk_closed *closed_get(void *keeper)
{
	struct tlk_closed *closed = closed_find(keeper);

	if (closed) {
		closed->holders++;
		keeper_put(keeper);
		return closed;
	}
	closed = kmalloc(sizeof(*closed), GFP_ATOMIC | __GFP_NOWARN);
	if (!closed) {
		keeper_put(keeper);
		return NULL;
	}
	closed->keeper = keeper;
	closed->holders = 1;
	closed->was_open = false;
	list_add(&closed->link, &all_closed);
	return closed;
}

/* A process that shares it may have opened it since it was closed. */
struct tlk_closed *tlk_dumpable_close(struct task_struct *task)
{
	void *keeper = keeper_get(task);
	struct tlk_closed *closed = keeper ? closed_get(keeper) : NULL;

	if (closed)
		closed->was_open |= value_change(keeper, OPEN, CLOSED);
	return closed;
}

void tlk_dumpable_open(struct tlk_closed *closed)
{
	if (--closed->holders)
		return;
	if (closed->was_open && READ_ONCE(*suid_value) != CLOSED)
		value_change(closed->keeper, CLOSED, OPEN);
	keeper_put(closed->keeper);
	list_del(&closed->link);
	kfree(closed);
}

/* The record has its own reference to the keeper. */
static struct tlk_closed *closed_of(struct task_struct *task)
{
	void *keeper = keeper_get(task);
	struct tlk_closed *closed = keeper ? closed_find(keeper) : NULL;

	if (keeper)
		keeper_put(keeper);
	return closed;
}

static bool is_open(struct task_struct *task)
{
	void *keeper = keeper_get(task);
	bool is = keeper && value_get(keeper) == OPEN;

	if (keeper)
		keeper_put(keeper);
	return is;
}

/* A parent that is open while its child is closed was opened after the fork. */
struct tlk_closed *tlk_dumpable_of_child(struct task_struct *child)
{
	void *keeper = keeper_get(child);
	const struct tlk_closed *parents;
	struct tlk_closed *closed;
	bool was_open;
	int value;

	if (!keeper)
		return NULL;
	value = value_get(keeper);
	parents = value == OPEN ? NULL : closed_of(current);
	was_open = parents ? parents->was_open : value == CLOSED && is_open(current);
	if (!parents && !was_open) {
		keeper_put(keeper);
		return NULL;
	}
	closed = closed_get(keeper);
	if (closed)
		closed->was_open |= was_open;
	return closed;
}

bool tlk_dumpable_is_of(const struct tlk_closed *closed, struct task_struct *task)
{
	return closed_of(task) == closed;
}
