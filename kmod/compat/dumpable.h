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
 * Closes the task's process to its user. Returns NULL if others than this file have closed it; it
 * stays so then, as it does if memory lacks. Atomic, as are the others; the caller's lock is around
 * all three.
 */
struct tlk_closed *tlk_dumpable_close(struct task_struct *task);

/*
 * Opens it again, unless another process that shares it is still to be closed. A process that the
 * kernel or the process itself has closed since, because of other credentials, stays closed.
 */
void tlk_dumpable_open(struct tlk_closed *closed);

/*
 * A child that has not run yet has inherited that its parent is closed. Returns what is closed of
 * the child, which may be the same; or NULL if it was copied before, or if memory lacks.
 */
struct tlk_closed *tlk_dumpable_of_child(struct task_struct *child, struct tlk_closed *closed);

#endif /* TLK_COMPAT_DUMPABLE_H */
