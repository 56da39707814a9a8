/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which calls may be made by whom: the rows of trapless_calls.h turned into two dispatch tables.
 * Policy and dispatch are one look-up, so that no path can forget to ask.
 */
#ifndef TLK_POLICY_H
#define TLK_POLICY_H

#include <linux/errno.h>
#include <asm/syscall.h>

#include "limits.h"

/*
 * Written while the module is being loaded, then read-only. What this caller may not call leads to
 * a handler that refuses; so does the last entry, which is where every number out of range goes.
 */
struct tlk_dispatch {
	sys_call_ptr_t handler[TLK_NUMBERS + 1];
};

/*
 * What the refusing handler returns. It lies among the codes of restart, so that one comparison
 * finds both, and no system call returns it.
 */
#define TLK_REFUSED (-ENOIOCTLCMD)

extern struct tlk_dispatch tlk_batch_calls;	/* what a thread may do in its own batch */
extern struct tlk_dispatch tlk_worker_calls;	/* what it may do for another thread */

void tlk_policy_init(const sys_call_ptr_t *table);

/* Another handler for a call; where it is refused, it stays refused. After tlk_policy_init(). */
void tlk_policy_replace(unsigned int nr, sys_call_ptr_t handler);

/* Calls of this kernel that a batch may make. */
unsigned int tlk_policy_count(void);

/* The result of a refused request: -ENOSYS (no such call) or -EOPNOTSUPP (not for you). */
long tlk_policy_refusal(unsigned int nr);

/*
 * The clamp is a conditional move and not a branch, as in the kernel's own masking of user
 * addresses: speculation cannot run ahead with a number out of range.
 */
static __always_inline sys_call_ptr_t tlk_policy_handler(const struct tlk_dispatch *calls,
							 unsigned long nr)
{
	asm("cmp %1, %0\n\tcmova %1, %0" : "+r" (nr) : "r" ((unsigned long)TLK_NUMBERS) : "cc");
	return calls->handler[nr];
}

#endif /* TLK_POLICY_H */
