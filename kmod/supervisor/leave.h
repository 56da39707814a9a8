/* SPDX-License-Identifier: GPL-2.0-only */
/* How a call goes on after exit work: what tlk_supervisor_exit_work() tells the assembly. */
#ifndef TLK_SUPERVISOR_LEAVE_H
#define TLK_SUPERVISOR_LEAVE_H

#define TLK_LEAVE_TO_SUPERVISOR 0	/* interrupts off, frame as for a return from a call */
#define TLK_LEAVE_TO_USER 1		/* interrupts off, all exit work done */
#define TLK_LEAVE_GONE 2		/* not a marked thread's any more; exit work still to do */

#endif /* TLK_SUPERVISOR_LEAVE_H */
