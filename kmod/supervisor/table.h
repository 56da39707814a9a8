/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The table of switched processes, for process.c, which changes it, and list.c, which shows it. All
 * of it is under tlk_thread_lock.
 */
#ifndef TLK_SUPERVISOR_TABLE_H
#define TLK_SUPERVISOR_TABLE_H

#include <linux/hashtable.h>
#include <linux/list.h>
#include <linux/types.h>
#include <linux/trapless.h>

#include "supervisor/cpu.h"

struct pid;
struct signal_struct;
struct tlk_closed;

struct tlk_process {
	struct hlist_node node;
	const struct signal_struct *signal;	/* identifies it; never dereferenced */
	struct pid *pid;
	enum tl_mode mode;			/* wanted */
	u32 flags;
	s32 resident;
	bool locking;				/* a thread locks the memory now, or has done so */
	bool executed;				/* a program that nobody has looked at yet */
	u64 switches;
	struct list_head threads;		/* states */
	unsigned int attached;			/* of them */
	struct tlk_call_counts past;		/* of states that are gone */
	struct tlk_closed *closed;		/* to its own user, or NULL */
};

struct tlk_ended_processes {
	struct tlk_call_counts counts;
	u64 switches;
};

#define TLK_PROCESS_BITS 6

extern DECLARE_HASHTABLE(tlk_process_table, TLK_PROCESS_BITS);	/* by their signal_struct */
extern struct tlk_ended_processes tlk_ended;

#endif /* TLK_SUPERVISOR_TABLE_H */
