/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Says which calls may be made by whom: two dispatch tables, made of the rows of trapless_calls.h.
 * Policy and dispatch are one look-up, so that no path can forget to ask. This header owns the
 * look-up; dispatch.c owns how the tables are made.
 */
#ifndef TLK_DISPATCH_H
#define TLK_DISPATCH_H

#include <linux/bits.h>
#include <linux/errno.h>
#include <linux/jump_label.h>
#include <linux/static_call.h>
#include <linux/trapless.h>

#include "compat/frame.h"
#include "limits.h"

/*
 * Written while the module is being loaded, then read-only. A call that this caller may not make
 * leads to a handler that refuses. Every number out of range goes to the last entry, which refuses
 * all but the compound calls of this kernel.
 */
struct tlk_dispatch {
	sys_call_ptr_t handler[TLK_NUMBERS + 1];
};

/*
 * The result of the refusing handler. It lies among the codes of restart, so that one comparison
 * finds both. A call or a filter's listener may return the same number, so the handler also sets a
 * mark above the bits of the frame's member that hold the number; requests are copied without it.
 */
#define TLK_REFUSED (-ENOIOCTLCMD)
#define TLK_REFUSED_MARK BIT_ULL(63)

/* Was the request in this frame refused? */
static __always_inline bool tlk_dispatch_has_refused(const struct pt_regs *regs)
{
	return regs->TLK_NR & TLK_REFUSED_MARK;
}

extern struct tlk_dispatch tlk_batch_calls;	/* what a thread may do in its own batch */
extern struct tlk_dispatch tlk_worker_calls;	/* what it may do for another thread */

void tlk_dispatch_init(const sys_call_ptr_t *table);

/* Sets another handler for a call; a refused call stays refused. After tlk_dispatch_init(). */
void tlk_dispatch_replace(unsigned int nr, sys_call_ptr_t handler);

/*
 * Sets the handler of every number above the table's. It looks the number up, and refuses it by
 * tlk_dispatch_refuse() if it is none of its own. After tlk_dispatch_init().
 */
void tlk_dispatch_set_beyond(sys_call_ptr_t handler);

/* The handler that refuses. */
long tlk_dispatch_refuse(const struct pt_regs *regs);

/*
 * Is the request in this frame a compound call? The rules of seccomp are about system calls, and
 * none of them knows it.
 */
static __always_inline bool tlk_dispatch_is_compound(const struct pt_regs *regs)
{
	return (u32)regs->TLK_NR == TL_NR_SCANDIR;
}

/*
 * A batch's handlers of the hot rows, for direct calls. They are the table's of tlk_batch_calls, so
 * policy is this one look-up, too; tlk_dispatch_seal() copies them where the kernel makes indirect
 * calls by retpolines, which cost more than the comparisons here. Nothing is replaced after it.
 */
#define TL_HOT(name, nr) DECLARE_STATIC_CALL(tlk_hot_##name, tlk_dispatch_refuse);
#include <linux/trapless_calls.h>
#undef TL_HOT
DECLARE_STATIC_KEY_FALSE(tlk_dispatch_is_direct);
void tlk_dispatch_seal(void);

/* How many calls of this kernel a batch may make. */
unsigned int tlk_dispatch_count(void);

/* The result of a refused request: -ENOSYS (no such call) or -EOPNOTSUPP (not for you). */
long tlk_dispatch_refusal(unsigned int nr);

static __always_inline sys_call_ptr_t tlk_dispatch_handler(const struct tlk_dispatch *calls,
							 unsigned long nr)
{
	return calls->handler[tlk_clamp(nr, TLK_NUMBERS)];
}

/* A call of a batch by comparisons: the table's handler, where the number has no hot row. */
static __always_inline long tlk_dispatch_call_directly(struct pt_regs *regs)
{
	switch (regs->TLK_NR) {
#define TL_HOT(name, nr) case nr: return static_call(tlk_hot_##name)(regs);
#include <linux/trapless_calls.h>
#undef TL_HOT
	}
	return tlk_dispatch_handler(&tlk_batch_calls, regs->TLK_NR)(regs);
}

#endif /* TLK_DISPATCH_H */
