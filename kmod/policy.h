/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which calls may be made by whom: the rows of trapless_calls.h turned into two dispatch tables.
 * Policy and dispatch are one look-up, so that no path can forget to ask.
 */
#ifndef TLK_POLICY_H
#define TLK_POLICY_H

#include <linux/nospec.h>
#include <asm/syscall.h>

#include "limits.h"

/* Written by tlk_policy_init() only, then read-only. NULL: not for this caller. */
struct tlk_dispatch {
	sys_call_ptr_t handler[TLK_NUMBERS];
};

extern struct tlk_dispatch tlk_batch_calls;	/* what a thread may do in its own batch */
extern struct tlk_dispatch tlk_worker_calls;	/* what it may do for another thread */

void tlk_policy_init(const sys_call_ptr_t *table);

/* Calls of this kernel that a batch may make. */
unsigned int tlk_policy_count(void);

/* Answer to a request without a handler: -ENOSYS (no such call) or -EOPNOTSUPP (refused). */
long tlk_policy_refusal(unsigned int nr);

static __always_inline sys_call_ptr_t tlk_policy_handler(const struct tlk_dispatch *calls,
							 unsigned int nr)
{
	if (unlikely(nr >= TLK_NUMBERS))
		return NULL;
	return calls->handler[array_index_nospec(nr, TLK_NUMBERS)];
}

#endif /* TLK_POLICY_H */
