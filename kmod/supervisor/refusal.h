/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The checks of the machine and of the target before a switch to supervisor mode. This header owns
 * which enum tl_refusal applies; trapless_refusals.h owns the texts.
 */
#ifndef TLK_SUPERVISOR_REFUSAL_H
#define TLK_SUPERVISOR_REFUSAL_H

#include <linux/sched.h>
#include <linux/trapless.h>

/* Both return bits 1 << TL_REFUSED_*. The second kind can change while the module is loaded. */
u64 tlk_refusals_of_machine(bool refuse_ibt);
u64 tlk_refusals_of_moment(void);

/* May the current task switch this process to supervisor mode, or back? -errno and the reason. */
int tlk_refuse_switch(struct task_struct *leader, u32 flags, u32 *why);
int tlk_refuse_return(struct task_struct *leader, u32 *why);

#endif /* TLK_SUPERVISOR_REFUSAL_H */
