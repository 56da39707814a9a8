/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Decides who else may read and write a process's memory: its user, or only holders of
 * CAP_SYS_PTRACE. This header owns where the kernel keeps that: in the memory map, and since
 * upstream commit "exec: introduce struct task_exec_state" (7.2) in a structure of its own.
 */
#ifndef TLK_COMPAT_DUMPABLE_H
#define TLK_COMPAT_DUMPABLE_H

#include <linux/types.h>

struct task_struct;

/*
 * The record of a closed process, by which it is opened again. Processes that share their memory
 * share the record, and stay closed as long as one of them has to. The record may outlive the
 * process.
 */
struct tlk_closed;

/* Finds what the functions below need. Returns 0 or -ENOENT. */
int tlk_dumpable_init(void);

/*
 * Closes the task's process to its user, if it is open. Returns the record for tlk_dumpable_open(),
 * also for a process that others have closed, which then stays closed. Returns NULL and changes
 * nothing if memory is short or the task has no memory map any more. All these functions are
 * atomic, and the caller holds its lock around each.
 */
struct tlk_closed *tlk_dumpable_close(struct task_struct *task);

/*
 * Opens the process again, unless another one that shares the record has to stay closed. If the
 * kernel or the process itself has closed it since, because its credentials changed, it stays
 * closed.
 */
void tlk_dumpable_open(struct tlk_closed *closed);

/*
 * The child of the current thread has not run yet. It is closed if its parent was closed when the
 * child was copied. Returns the child's record, which may be its parent's. Returns NULL if the
 * child is open because it was copied before, if this module has not closed the parent, or if
 * memory is short.
 */
struct tlk_closed *tlk_dumpable_of_child(struct task_struct *child);

/* Is the record about the memory that the task has now? */
bool tlk_dumpable_is_of(const struct tlk_closed *closed, struct task_struct *task);

#endif /* TLK_COMPAT_DUMPABLE_H */
