/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel's tracepoints of fork, exec and exit, by which processes in supervisor mode are
 * followed. This header owns their registration; process.h owns what they lead to.
 */
#ifndef TLK_SUPERVISOR_HOOKS_H
#define TLK_SUPERVISOR_HOOKS_H

int tlk_supervisor_hooks_init(void);
void tlk_supervisor_hooks_exit(void);

#endif /* TLK_SUPERVISOR_HOOKS_H */
