// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * Hands a ring over from the module to user-space workers, for good. It owns that handover, the
 * question which side serves, and the wake-up of all threads. psc.c asks for it; psc/worker.c then
 * serves requests.
 *
 * The module answers -EBUSY to a thread that is traced or audited, because the tracer must see its
 * calls one by one, and -EPERM to a thread with another identity than the other threads.
 * TL_IOC_EXIT then makes every worker return, and the worker threads go on in user space on the
 * same ring.
 *
 * The thread that made a request's state TL_RUNNING by compare-and-exchange owns the request. A
 * request that the module has not begun is still TL_SUBMITTED. A request that a worker had begun is
 * TL_SUBMITTED again if a signal has interrupted it and it is to be made again. The requester, the
 * only owner of the counters, gives both kinds a new place in submit[].
 */
#include "psc_state.h"
#include "futex.h"

#include <limits.h>

/* Bits of module_stopped. */
#define STOPPING 1u
#define STOPPED 2u

void tl_psc_stop_module(struct tl_psc *psc)
{
	uint32_t before = __atomic_fetch_or(&psc->module_stopped, STOPPING, __ATOMIC_SEQ_CST);

	if (before & STOPPED)
		return;
	tl_device_ioctl(psc->fd, TL_IOC_EXIT, psc->requests);
	__atomic_fetch_or(&psc->module_stopped, STOPPED, __ATOMIC_SEQ_CST);
}

void tl_psc_signal(struct tl_psc *psc)
{
	/* Pairs with the requester, which stores `armed` before it looks at the queue. */
	if (__atomic_load_n(&psc->loop_fd, __ATOMIC_SEQ_CST) < 0 ||
	    !__atomic_exchange_n(psc->armed, 0, __ATOMIC_SEQ_CST))
		return;
	if (psc->backend == TL_BACKEND_MODULE)
		tl_device_ioctl(psc->fd, TL_IOC_WAKE, psc->requests);
	else
		tl_wake_signal(&tl_header_of(psc)->wake);
}

void tl_psc_wake_all(struct tl_psc *psc)
{
	__atomic_fetch_add(&psc->bell, 1, __ATOMIC_SEQ_CST);
	futex_wake(&psc->bell, INT_MAX);
	__atomic_fetch_add(&psc->finished, 1, __ATOMIC_SEQ_CST);
	futex_wake(&psc->finished, INT_MAX);
	/* A thread that waits for the descriptor looks again, too, and hands requests over. */
	tl_psc_signal(psc);
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

/* Inserts the slot behind the notified requests and before those that were only added. */
static void resubmit(struct tl_psc *psc, uint32_t slot)
{
	for (uint32_t k = psc->added++; k != psc->notified; k--)
		place(psc, psc->submit[(k - 1) & psc->submit_mask], k);
	place(psc, slot, psc->notified);
	/* Pairs with claim(): a worker that sees the new count sees the entry. */
	__atomic_store_n(&psc->notified, psc->notified + 1, __ATOMIC_SEQ_CST);
}

/* The module comes to no canceled request any more, so that their slots are free. */
static void free_canceled(struct tl_psc *psc)
{
	for (uint32_t i = 1; i <= psc->canceled_n; i++) {
		uint32_t slot = psc->free_slots[psc->entries - i];
		uint8_t state = TL_CANCELED;

		if ((int32_t)(psc->index_of[slot] - psc->handover) < 0)
			__atomic_compare_exchange_n(&psc->requests[slot].state, &state, TL_FREE,
						    false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
	}
}

/*
 * Resubmits requests in the order in which the module got them, as far as submit[] still tells that
 * order, and then all others. It writes places behind `notified` no faster than it reads them.
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
 * There are twice as many places as slots, because a slot may have two places: a worker that got
 * the slot from the module just before the module stopped may still claim it. Workers then pass
 * over the slot's second place, and until they do the slot may be in use again.
 */
static void move_places(struct tl_psc *psc)
{
	uint32_t mask = 2 * psc->entries - 1;

	for (uint32_t k = psc->added - psc->entries; k != psc->added; k++)
		psc->places[k & mask] = psc->submit[k & psc->submit_mask];
	psc->submit = psc->places;
	psc->submit_mask = mask;
}

void tl_psc_hand_over(struct tl_psc *psc)
{
	uint32_t workers_out = __atomic_load_n(&psc->workers_out, __ATOMIC_SEQ_CST);

	if (psc->serving && workers_out == psc->workers_out_seen)
		return;
	psc->workers_out_seen = workers_out;
	if (!psc->serving) {
		tl_psc_stop_module(psc);
		psc->handover = psc->notified;
		psc->taken = psc->notified;
		move_places(psc);
		/* Workers read the counters only after they have seen this. */
		__atomic_store_n(&psc->serving, 1, __ATOMIC_SEQ_CST);
	}
	free_canceled(psc);
	resubmit_all(psc);
	tl_psc_wake_all(psc);
}

bool tl_psc_in_user_space(struct tl_psc *psc)
{
	if (tl_psc_in_module(psc))
		return false;
	if (psc->backend != TL_BACKEND_PLAIN)
		tl_psc_hand_over(psc);
	return true;
}
