// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * The end of requests, as the requester sees it: results, cancellation, the queues of completions
 * and the descriptor that says that there are some. It owns the requester's side of them. The
 * module and worker.c fill the queues.
 */
#include "psc_state.h"

#include <errno.h>

static uint8_t state_of(const struct tl_psc *psc, uint32_t slot)
{
	return __atomic_load_n(&psc->requests[slot].state, __ATOMIC_ACQUIRE);
}

/*
 * Calls of a program that were never made have a result, too. Their state tells them from calls
 * whose result is the same error.
 */
static void complete_program(const struct tl_request *request)
{
	struct tl_request *requests = (struct tl_request *)(uintptr_t)request->args[0];

	for (uint64_t i = 0; i < request->args[1]; i++) {
		if (requests[i].state == TL_DONE)
			continue;
		requests[i].result = -ECANCELED;
		requests[i].state = TL_CANCELED;
	}
}

/* Takes the result of a request that is complete, and frees its slot. */
static int64_t take_result(struct tl_psc *psc, uint32_t slot)
{
	struct tl_request *request = &psc->requests[slot];

	if (request->nr == TL_NR_PROGRAM && request->args[5] == PSC_OWN_PROGRAM)
		complete_program(request);
	__atomic_store_n(&request->state, TL_FREE, __ATOMIC_RELAXED);
	psc->free_slots[psc->free_n++] = slot;
	return request->result;
}

int tl_psc_result(struct tl_psc *psc, unsigned int slot, int64_t *result)
{
	int64_t value;

	if (!psc->entries)
		return -EPERM;
	if (slot >= psc->entries)
		return tl_slot_error(slot);
	if (psc->own.slots)
		return -EINVAL;
	if (state_of(psc, slot) != TL_DONE) {
		tl_psc_in_user_space(psc);
		return 0;
	}
	value = take_result(psc, slot);
	if (result)
		*result = value;
	return 1;
}

/* ---- Cancellation ------------------------------------------------------------------------ */

static uint32_t *canceled(struct tl_psc *psc, uint32_t i)
{
	return &psc->free_slots[psc->entries - 1 - i];
}

uint32_t tl_psc_canceled_ahead(struct tl_psc *psc)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < psc->canceled_n; i++)
		n += state_of(psc, *canceled(psc, i)) == TL_CANCELED;
	return n;
}

void tl_psc_free_canceled(struct tl_psc *psc)
{
	for (uint32_t i = 0; i < psc->canceled_n;) {
		uint32_t slot = *canceled(psc, i);

		if (state_of(psc, slot) == TL_CANCELED) {
			i++;
			continue;
		}
		*canceled(psc, i) = *canceled(psc, --psc->canceled_n);
		psc->free_slots[psc->free_n++] = slot;
	}
}

/*
 * Has a worker made a step of the program that the request leads to? The first step is always its
 * first call. A worker of the module may have left it half made and submitted, when the ring was
 * handed over; the module itself gives no such program back.
 */
static bool is_begun(const struct tl_request *request)
{
	const struct tl_request *program = (const struct tl_request *)(uintptr_t)request->args[0];

	return request->nr == TL_NR_PROGRAM && request->args[5] == PSC_OWN_PROGRAM &&
	       __atomic_load_n(&program->state, __ATOMIC_RELAXED) == TL_DONE;
}

int tl_psc_cancel(struct tl_psc *psc, unsigned int slot)
{
	struct tl_request *request;
	uint8_t state = TL_SUBMITTED;

	if (!psc->entries)
		return -EPERM;
	if (slot >= psc->entries)
		return tl_slot_error(slot);
	request = &psc->requests[slot];
	if (__atomic_load_n(&request->state, __ATOMIC_ACQUIRE) != TL_SUBMITTED ||
	    is_begun(request) ||
	    !__atomic_compare_exchange_n(&request->state, &state, TL_CANCELED, false,
					 __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		return 0;
	/* Begun and left between the two looks, as the ring was shut: nobody else has seen this. */
	if (is_begun(request)) {
		__atomic_store_n(&request->state, TL_SUBMITTED, __ATOMIC_RELEASE);
		return 0;
	}
	psc->user_data[slot] = 0;
	*canceled(psc, psc->canceled_n++) = slot;
	return 1;
}

/* ---- The queues of completions ----------------------------------------------------------- */

static bool take_completion(struct tl_psc *psc, struct psc_completions *queue, uint32_t *slot)
{
	uint32_t *place, value;

	if (!queue->slots)
		return false;
	place = &queue->slots[queue->taken & psc->mask];
	/* Not merely with acquire: that could be read before the store of rearm() is seen. */
	value = __atomic_load_n(place, __ATOMIC_SEQ_CST);
	if (!value)
		return false;
	__atomic_store_n(place, 0, __ATOMIC_RELAXED);
	queue->taken++;
	*slot = (value - 1) & psc->mask;
	return true;
}

static bool any_completion(struct tl_psc *psc, uint32_t *slot)
{
	return take_completion(psc, &psc->of_module, slot) ||
	       take_completion(psc, &psc->own, slot);
}

/*
 * The requester has found no completion. From here on the descriptor becomes readable only for a
 * completion that the requester has not seen. With the module, `armed` alone decides that. Without
 * it, whoever has stored 0 to `armed` writes to the pipe, now or soon. A signal that is taken from
 * the pipe may be for a completion after the arming. Then `armed` is 0, and a completion whose
 * place is filled late would not be announced. So nothing is taken from the pipe after the last
 * arming.
 */
static void rearm(struct tl_psc *psc)
{
	unsigned int taken;

	for (;;) {
		if (!__atomic_exchange_n(psc->armed, 1, __ATOMIC_SEQ_CST))
			psc->signals++;
		if (psc->backend == TL_BACKEND_MODULE || psc->signals_taken == psc->signals)
			return;
		taken = tl_wake_take(&tl_header_of(psc)->wake);
		if (!taken)
			return;
		psc->signals_taken += taken;
	}
}

int tl_psc_next(struct tl_psc *psc, struct tl_psc_completion *completion)
{
	uint32_t slot;

	if (!psc->entries)
		return -EPERM;
	if (!psc->own.slots)
		return -EINVAL;
	if (!any_completion(psc, &slot)) {
		if (psc->loop_fd >= 0)
			rearm(psc);
		/*
		 * Behind the arming, as the look at the queue is: a thread that makes the module
		 * stop wakes the requester if it finds the descriptor armed, or else is seen here.
		 */
		tl_psc_in_user_space(psc);
		if (psc->loop_fd < 0 || !any_completion(psc, &slot))
			return 0;
	}
	completion->user_data = psc->user_data[slot];
	completion->result = take_result(psc, slot);
	completion->slot = slot;
	completion->reserved = 0;
	psc->user_data[slot] = 0;
	return 1;
}

int tl_psc_fd(struct tl_psc *psc)
{
	struct tl_wake *wake = &tl_header_of(psc)->wake;
	int fd = psc->fd;

	if (!psc->entries)
		return -EPERM;
	if (!psc->own.slots)
		return -EINVAL;
	if (psc->loop_fd >= 0)
		return psc->loop_fd;
	/* It is readable at first: nobody has looked at the queue yet. */
	if (psc->backend == TL_BACKEND_PLAIN) {
		int error = tl_wake_open(wake);

		if (error)
			return error;
		tl_wake_signal(wake);
		fd = wake->read_fd;
	}
	__atomic_store_n(&psc->loop_fd, fd, __ATOMIC_SEQ_CST);
	return fd;
}
