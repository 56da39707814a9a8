// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * worker.c - workers in user space: ordinary threads that take requests from the ring and make
 * them as plain calls. They serve where the module is absent, and after a handover from the module
 * (psc/handover.c). Slots and the five operations are the business of psc.c.
 */
#include "psc_state.h"
#include "futex.h"

#include <errno.h>
#include <time.h>

#define SPINS_PER_CLOCK 64u	/* reads of the bell between two reads of the clock */

static uint32_t load(const uint32_t *word)
{
	return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

static void count(__u64 *counter)
{
	__atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

/* ---- The requester's side ---------------------------------------------------------------- */

/*
 * Requests that the module's workers had begun before a handover finish without decrementing
 * `unfinished`, so the states are counted. Requests that were added since the last notify are in
 * state TL_SUBMITTED, too, but not notified.
 */
static uint32_t unfinished(const struct tl_psc *psc)
{
	uint32_t n = 0;

	if (psc->backend == TL_BACKEND_PLAIN)
		return load(&psc->unfinished);
	for (uint32_t slot = 0; slot < psc->entries; slot++) {
		uint32_t state = __atomic_load_n(&psc->requests[slot].state, __ATOMIC_ACQUIRE);

		n += state == TL_SUBMITTED || state == TL_RUNNING;
	}
	return n - (psc->added - psc->notified);
}

void tl_psc_worker_notify(struct tl_psc *psc)
{
	uint32_t n = psc->added - psc->notified, sleepers;

	if (!n)
		return;
	__atomic_fetch_add(&psc->unfinished, n, __ATOMIC_SEQ_CST);
	/* Release: a worker that sees the new count sees submit[] and the requests, too. */
	__atomic_store_n(&psc->notified, psc->added, __ATOMIC_SEQ_CST);
	__atomic_fetch_add(&psc->bell, 1, __ATOMIC_SEQ_CST);
	/* Pairs with the worker's sleepers++ before the futex reads `bell` for the last time. */
	sleepers = load(&psc->sleepers);
	if (sleepers) {
		count(&psc->counts.wakeups);
		futex_wake(&psc->bell, n < sleepers ? (int)n : (int)sleepers);
	}
}

int tl_psc_worker_wait(struct tl_psc *psc, unsigned int left)
{
	int32_t target = left > INT32_MAX ? INT32_MAX : (int32_t)left;
	int result = 0;
	uint32_t n;

	for (;;) {
		uint32_t finished = load(&psc->finished);

		if (psc->backend == TL_BACKEND_MODULE)
			tl_psc_hand_over(psc);
		/* Pairs with the worker, which writes `unfinished` before it reads wait_left. */
		__atomic_store_n(&psc->wait_left, target, __ATOMIC_SEQ_CST);
		n = unfinished(psc);
		if (n > left)
			result = futex_wait(&psc->finished, finished);
		__atomic_store_n(&psc->wait_left, PSC_NOT_WAITING, __ATOMIC_SEQ_CST);
		if (n <= left)
			return (int)n;
		if (result == -EINTR)
			return -EINTR;
	}
}

/* ---- The worker's side ------------------------------------------------------------------- */

/* Claims the oldest request. It reads submit[] before `taken` frees the place for reuse. */
static bool claim(struct tl_psc *psc, uint32_t *slot)
{
	uint32_t taken;

	if (!load(&psc->serving))
		return false;
	taken = load(&psc->taken);
	while (taken != load(&psc->notified)) {
		*slot = __atomic_load_n(&psc->submit[taken & psc->submit_mask], __ATOMIC_RELAXED);
		if (__atomic_compare_exchange_n(&psc->taken, &taken, taken + 1, false,
						__ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			return true;
	}
	return false;
}

static void serve(struct tl_psc *psc, struct tl_request *request)
{
	uint32_t left;
	uint8_t state = TL_SUBMITTED;
	int32_t target;

	/* Acquire: see the requester's writes, even if a worker of the module had the request. */
	if (!__atomic_compare_exchange_n(&request->state, &state, TL_RUNNING, false,
					 __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
		return;
	if (tl_plain_execute(request, TL_CALL_ANY)) {
		count(&psc->counts.executed);
		count(&psc->counts.crossings);
	} else {
		count(&psc->counts.refused);
	}
	tl_plain_complete(request);
	left = __atomic_sub_fetch(&psc->unfinished, 1, __ATOMIC_SEQ_CST);
	target = __atomic_load_n(&psc->wait_left, __ATOMIC_SEQ_CST);
	if (target == PSC_NOT_WAITING)
		return;
	if (left <= (uint32_t)target || load(&psc->module_stopped)) {
		__atomic_fetch_add(&psc->finished, 1, __ATOMIC_SEQ_CST);
		futex_wake(&psc->finished, 1);
	}
}

static uint64_t now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

/* Reads the bell for up to spin_us. Returns whether it has changed. */
static bool spin(const struct tl_psc *psc, uint32_t bell)
{
	uint64_t end_us;

	if (!psc->spin_us)
		return false;
	end_us = now_us() + psc->spin_us;
	do {
		for (unsigned int i = 0; i < SPINS_PER_CLOCK; i++) {
			if (load(&psc->bell) != bell)
				return true;
			__builtin_ia32_pause();
		}
	} while (now_us() < end_us);
	return false;
}

static int sleep_on(struct tl_psc *psc, uint32_t bell)
{
	int result;

	__atomic_fetch_add(&psc->sleepers, 1, __ATOMIC_SEQ_CST);
	count(&psc->counts.sleeps);
	result = futex_wait(&psc->bell, bell);
	__atomic_fetch_sub(&psc->sleepers, 1, __ATOMIC_SEQ_CST);
	return result;
}

long tl_psc_worker_enter(struct tl_psc *psc)
{
	long served = 0;
	uint32_t slot;

	for (;;) {
		uint32_t bell = load(&psc->bell);

		if (load(&psc->exiting))
			return served;
		if (claim(psc, &slot)) {
			serve(psc, &psc->requests[slot & psc->mask]);
			served++;
			continue;
		}
		if (spin(psc, bell))
			continue;
		if (sleep_on(psc, bell) == -EINTR) {
			count(&psc->counts.interrupted);
			return -EINTR;
		}
	}
}
