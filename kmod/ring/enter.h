/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The check that every entry into the module makes first, and the registers in which an entry is
 * described: the binary interface says which and why. device.c makes the check; `trapless estimate`
 * makes it in user space, so that it measures what the module does.
 */
#ifndef TLK_ENTER_H
#define TLK_ENTER_H

#include "ring/request.h"
#include "ring/ring.h"

/* May this thread enter the module by this ring now? 0 or -errno. */
static __always_inline int tlk_enter_check(struct tlk_ring *ring)
{
	if (unlikely(!ring))
		return -EINVAL;
	/* Both pointers are pinned, the ring's by mmgrab(): equal means the same address space. */
	if (unlikely(ring->mm != current->mm))
		return -EPERM;
	if (unlikely(!tlk_may_enter()))
		return -EOPNOTSUPP;
	if (unlikely(tlk_context_is_nested()))
		return -EDEADLK;
	if (unlikely(data_race(current->ptrace))) {
		atomic64_inc(&ring->counts.bypassed);
		return -EBUSY;
	}
	return 0;
}

static __always_inline unsigned long tlk_enter_argument(const struct pt_regs *regs)
{
	return regs->TLK_ARG4;
}

/* The slot that the entry names by its address; too large if that is not in this ring. */
static __always_inline unsigned long tlk_enter_slot(const struct tlk_ring *ring,
						    const struct pt_regs *regs)
{
	return (regs->TLK_ARG3 - READ_ONCE(ring->address)) / sizeof(struct tl_request);
}

#endif /* TLK_ENTER_H */
