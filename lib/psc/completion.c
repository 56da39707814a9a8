// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * The end of requests, as the requester sees it: results, cancellation, the queues of completions
 * and the descriptor that says that there are some. It owns the requester's side of them. The
 * module and worker.c fill the queues.
 */
#include "psc_state.h"
#include "enter.h"

#include <errno.h>
#include <sys/eventfd.h>

static uint8_t state_of(const struct tl_psc *psc, uint32_t slot)
{
	return __atomic_load_n(&psc->requests[slot].state, __ATOMIC_ACQUIRE);
}

/* Calls of a program that were never made have a result, too. */
static void complete_program(const struct tl_request *request)
{
	struct tl_request *requests = (struct tl_request *)(uintptr_t)request->args[0];

	for (uint64_t i = 0; i < request->args[1]; i++) {
		if (requests[i].state == TL_DONE)
			continue;
		requests[i].result = -ECANCELED;
		requests[i].state = TL_DONE;
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
	if (slot >= psc->entries || psc->own.slots)
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

int tl_psc_cancel(struct tl_psc *psc, unsigned int slot)
{
	uint8_t state = TL_SUBMITTED;

	if (!psc->entries)
		return -EPERM;
	if (slot >= psc->entries)
		return -EINVAL;
	if (!__atomic_compare_exchange_n(&psc->requests[slot].state, &state, TL_CANCELED, false,
					 __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		return 0;
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
	value = __atomic_load_n(place, __ATOMIC_ACQUIRE);
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

/* Who has stored 0 adds one to the event counter, now or soon. Then the requester looks again. */
static void arm(struct tl_psc *psc, const struct psc_completions *queue)
{
	if (queue->armed && !__atomic_exchange_n(queue->armed, 1, __ATOMIC_SEQ_CST))
		psc->signals++;
}

/*
 * The requester has found no completion. From here on the descriptor is readable again only if
 * there is one that it has not seen. What is read may be a signal for what came after arming: then
 * nobody is armed any more, and a completion whose place is filled late would come in silence. So
 * nothing is read after the last arming.
 */
static void rearm(struct tl_psc *psc)
{
	uint64_t n;

	for (;;) {
		n = 0;
		arm(psc, &psc->of_module);
		arm(psc, &psc->own);
		if (psc->signals_read == psc->signals ||
		    raw_syscall(SYS_read, (uint64_t)psc->event_fd, (uintptr_t)&n, sizeof(n),
				0, 0, 0) <= 0)
			return;
		psc->signals_read += n;
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
		tl_psc_in_user_space(psc);
		if (psc->event_fd < 0)
			return 0;
		rearm(psc);
		if (!any_completion(psc, &slot))
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
	int result;
	long fd;

	if (!psc->entries)
		return -EPERM;
	if (!psc->own.slots)
		return -EINVAL;
	if (psc->event_fd >= 0)
		return psc->event_fd;
	/* It is readable at first: nobody has looked at the queue yet. */
	fd = raw_syscall(SYS_eventfd2, 1, EFD_NONBLOCK | EFD_CLOEXEC, 0, 0, 0, 0);
	if (fd < 0)
		return (int)fd;
	if (psc->of_module.armed) {
		__atomic_store_n(psc->of_module.armed, 1, __ATOMIC_SEQ_CST);
		result = tl_device_ioctl(psc->fd, TL_IOC_EVENT, (void *)fd);
		if (result) {
			raw_syscall(SYS_close, (uint64_t)fd, 0, 0, 0, 0, 0);
			return result;
		}
	}
	tl_header_of(psc)->event_fd = (int)fd;
	__atomic_store_n(&psc->event_fd, (int)fd, __ATOMIC_SEQ_CST);
	return (int)fd;
}
