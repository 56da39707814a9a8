/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Who may look into a process and write to its memory, beside itself: its user, or only those with
 * CAP_SYS_PTRACE. This header owns where the kernel keeps that: in the memory map, and since
 * upstream commit "exec: introduce struct task_exec_state" (7.2) in a structure of its own.
 */
#ifndef TLK_COMPAT_DUMPABLE_H
#define TLK_COMPAT_DUMPABLE_H

#include <linux/types.h>

struct task_struct;

/*
 * What was closed, to be opened again. Processes that share their memory share this: it is closed
 * as long as one of them is to be. It may be held longer than the process lives.
 */
struct tlk_closed;

/* Finds what the functions below need. Returns 0 or -ENOENT. */
int tlk_dumpable_init(void);

/*
 * Closes the task's process to its user, if it is open. Returns what tlk_dumpable_open() takes,
 * also for one that others have closed, and that stays so; or NULL, and nothing is changed, if
 * memory lacks or the task has none any more. Atomic, as are the others; the caller's lock is
 * around all.
 */
struct tlk_closed *tlk_dumpable_close(struct task_struct *task);

/*
 * Opens it again, unless another process that shares it is still to be closed. A process that the
 * kernel or the process itself has closed since, because of other credentials, stays closed.
 */
void tlk_dumpable_open(struct tlk_closed *closed);

/*
 * A child of the current thread that has not run yet has inherited that its parent is closed, or
 * was when the child was copied. Returns what is closed of the child, which may be the same; or
 * NULL if it is open, because it was copied before, if nobody has closed its parent here, or if
 * memory lacks.
 */
struct tlk_closed *tlk_dumpable_of_child(struct task_struct *child);

/* Whether it was the task's present program, or shares its memory, that was closed. */
bool tlk_dumpable_is_of(const struct tlk_closed *closed, struct task_struct *task);

#endif /* TLK_COMPAT_DUMPABLE_H */
