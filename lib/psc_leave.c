// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * psc_leave.c - how a ring leaves the module for good. It owns the handing over of requests and the
 * bell that tells everybody; who asks for it is psc.c, who serves them afterwards psc_plain.c.
 *
 * The module answers -EBUSY to a thread that is traced or audited, since its calls must be made one
 * by one where the tracer looks, and -EPERM to one with another identity than the others.
 * TL_IOC_EXIT then sends every worker home, and worker threads go on in user space on the same
 * ring.
 *
 * A request has one owner, whoever made its state TL_RUNNING by compare-and-exchange. What the
 * module has not begun is still TL_SUBMITTED; what a worker had begun becomes so again when a
 * signal interrupted it and it is to be made again. The requester, which alone owns the counters,
 * gives both kinds a new place in submit[].
 */
#include "psc.h"
#include "futex.h"

#include <limits.h>

/* Bits of leave_module. */
#define LEAVING 1u
#define LEFT 2u

void tl_psc_leave(struct tl_psc *psc)
{
	uint32_t before = __atomic_fetch_or(&psc->leave_module, LEAVING, __ATOMIC_SEQ_CST);

	if (before & LEFT)
		return;
	tl_device_ioctl(psc->fd, TL_IOC_EXIT, NULL);
	__atomic_fetch_or(&psc->leave_module, LEFT, __ATOMIC_SEQ_CST);
}

void tl_psc_ring(struct tl_psc *psc)
{
	__atomic_fetch_add(&psc->bell, 1, __ATOMIC_SEQ_CST);
	futex_wake(&psc->bell, INT_MAX);
	__atomic_fetch_add(&psc->finished, 1, __ATOMIC_SEQ_CST);
	futex_wake(&psc->finished, INT_MAX);
}

static bool submitted(const struct tl_psc *psc, uint32_t slot)
{
	return __atomic_load_n(&psc->requests[slot].state, __ATOMIC_ACQUIRE) == TL_SUBMITTED;
}

static void place(struct tl_psc *psc, uint32_t slot, uint32_t k)
{
	__atomic_store_n(&psc->submit[k & psc->submit_mask], slot, __ATOMIC_RELAXED);
	psc->index_of[slot] = k;
}

/* Behind what was handed out, before what was only added. */
static void resubmit(struct tl_psc *psc, uint32_t slot)
{
	for (uint32_t k = psc->added++; k != psc->notified; k--)
		place(psc, psc->submit[(k - 1) & psc->submit_mask], k);
	place(psc, slot, psc->notified);
	/* Pairs with claim(): whoever sees the new count sees the entry. */
	__atomic_store_n(&psc->notified, psc->notified + 1, __ATOMIC_SEQ_CST);
}

/*
 * First in the order in which they were handed to the module, as far as submit[] still tells;
 * places behind `notified` are written no faster than this reads on. Then whatever is left.
 */
static void resubmit_all(struct tl_psc *psc)
{
	for (uint32_t k = psc->handover - psc->entries; k != psc->handover; k++) {
		uint32_t slot = psc->submit[k & psc->submit_mask] & psc->mask;

		if (psc->index_of[slot] == k && submitted(psc, slot))
			resubmit(psc, slot);
	}
	for (uint32_t slot = 0; slot < psc->entries; slot++)
		if ((int32_t)(psc->index_of[slot] - psc->handover) < 0 && submitted(psc, slot))
			resubmit(psc, slot);
}

/*
 * Twice as many places as slots, since a slot may have two: a worker that the module had given it
 * to just before it was shut down may claim it yet, and the place that it was given here is passed
 * over when its turn comes. Until then the slot may be in use again.
 */
static void move_places(struct tl_psc *psc)
{
	uint32_t mask = 2 * psc->entries - 1;

	for (uint32_t k = psc->added - psc->entries; k != psc->added; k++)
		psc->places[k & mask] = psc->submit[k & psc->submit_mask];
	psc->submit = psc->places;
	psc->submit_mask = mask;
}

void tl_psc_take_over(struct tl_psc *psc)
{
	uint32_t came_home = __atomic_load_n(&psc->came_home, __ATOMIC_SEQ_CST);

	if (psc->serving && came_home == psc->home_seen)
		return;
	psc->home_seen = came_home;
	if (!psc->serving) {
		tl_psc_leave(psc);
		psc->handover = psc->notified;
		psc->taken = psc->notified;
		move_places(psc);
		/* Workers look at the counters only after they have seen this. */
		__atomic_store_n(&psc->serving, 1, __ATOMIC_SEQ_CST);
	}
	resubmit_all(psc);
	tl_psc_ring(psc);
}
