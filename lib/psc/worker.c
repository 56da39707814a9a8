// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * Workers in user space: ordinary threads that take requests from the ring and make them as plain
 * calls. They serve where the module is absent, and after a handover from the module
 * (psc/handover.c). Slots and the five operations are the business of psc.c.
 */
#include "psc_state.h"
#include "futex.h"

#include <errno.h>
#include <time.h>
#include <unistd.h>

#define SPINS_PER_CLOCK 64u	/* reads of the bell between two reads of the clock */
#define STEPS_PER_LOOK 64u	/* of a program, between two looks whether the worker must return */

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
 * state TL_SUBMITTED or TL_CANCELED, too, but not notified.
 */
static uint32_t unfinished(const struct tl_psc *psc)
{
	uint32_t n = 0;

	if (psc->backend == TL_BACKEND_PLAIN)
		return load(&psc->unfinished);
	/* Not merely with acquire: wait_left is to be seen before the states are read. */
	for (uint32_t slot = 0; slot < psc->entries; slot++) {
		uint32_t state = __atomic_load_n(&psc->requests[slot].state, __ATOMIC_SEQ_CST);

		n += state == TL_SUBMITTED || state == TL_RUNNING || state == TL_CANCELED;
	}
	return n - (psc->added - psc->notified);
}

void tl_psc_worker_notify(struct tl_psc *psc)
{
	uint32_t n = psc->added - psc->notified;

	if (!n)
		return;
	__atomic_fetch_add(&psc->unfinished, n, __ATOMIC_SEQ_CST);
	/* Release: a worker that sees the new count sees submit[] and the requests, too. */
	__atomic_store_n(&psc->notified, psc->added, __ATOMIC_SEQ_CST);
	__atomic_fetch_add(&psc->bell, 1, __ATOMIC_SEQ_CST);
	/* Pairs with the worker's sleepers++ before the futex reads `bell` for the last time. */
	tl_psc_pool_notify(psc, n);
}

/* Sleeps until psc->finished changes: 0, -EINTR, or -ETIME. */
static int wait_until(struct tl_psc *psc, uint32_t finished, uint64_t end_ns)
{
	struct timespec timeout;
	uint64_t now_ns;

	if (end_ns == UINT64_MAX)
		return futex_wait(&psc->finished, finished);
	now_ns = tl_psc_now_ns();
	if (now_ns >= end_ns)
		return -ETIME;
	timeout.tv_sec = (time_t)((end_ns - now_ns) / 1000000000u);
	timeout.tv_nsec = (long)((end_ns - now_ns) % 1000000000u);
	return futex_wait_for(&psc->finished, finished, &timeout);
}

int tl_psc_worker_wait(struct tl_psc *psc, unsigned int left, uint64_t end_ns)
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
			result = wait_until(psc, finished, end_ns);
		__atomic_store_n(&psc->wait_left, PSC_NOT_WAITING, __ATOMIC_SEQ_CST);
		if (n <= left)
			return (int)n;
		if (result == -EINTR || result == -ETIME)
			return result;
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

/* Counts off a request that is complete or canceled. */
static void finish(struct tl_psc *psc)
{
	uint32_t left = __atomic_sub_fetch(&psc->unfinished, 1, __ATOMIC_SEQ_CST);
	int32_t target = __atomic_load_n(&psc->wait_left, __ATOMIC_SEQ_CST);

	if (target == PSC_NOT_WAITING)
		return;
	if (left <= (uint32_t)target || load(&psc->module_stopped)) {
		__atomic_fetch_add(&psc->finished, 1, __ATOMIC_SEQ_CST);
		futex_wake(&psc->finished, 1);
	}
}

static void report(struct tl_psc *psc, uint32_t slot)
{
	uint32_t k = __atomic_fetch_add(&psc->completed, 1, __ATOMIC_SEQ_CST);

	/* Pairs with take_completion(). */
	__atomic_store_n(&psc->own.slots[k & psc->mask], slot + 1, __ATOMIC_RELEASE);
}

static void add_counts(struct tl_psc *psc, const struct tl_stats *counts)
{
#define TL_COUNT(member, offset) \
	__atomic_fetch_add(&psc->counts.member, counts->member, __ATOMIC_RELAXED);
#include <linux/trapless_fields.h>
}

/*
 * Makes the program that the request leads to. Returns false if the ring is destroyed before its
 * end: then the request is as it was, but for the steps that were made.
 */
static bool serve_program(struct tl_psc *psc, struct tl_request *request)
{
	struct tl_request *requests = (struct tl_request *)(uintptr_t)request->args[0];
	struct tl_program program = { .at = (uint32_t)request->args[4] };
	uint64_t end = request->args[1], left = request->args[2];
	struct tl_stats counts = { 0 };
	int error = -ETIME;

	request->result = -EINVAL;
	if (!end || end > TL_ENTRIES_MAX || request->args[4] > end ||
	    request->args[3] & ~(uint64_t)TL_PROGRAM_CHAIN)
		return true;
	request->result = 0;
	while (error == -ETIME && left && !load(&psc->exiting)) {
		program.steps = left < STEPS_PER_LOOK ? left : STEPS_PER_LOOK;
		left -= program.steps;
		error = tl_program_serve(&program, requests, (uint32_t)end,
					 request->args[3] != 0, (int64_t *)&request->result,
					 &counts);
		left += program.steps;
	}
	add_counts(psc, &counts);
	if (!error)
		return true;
	if (!left) {
		request->result = -ETIME;
		return true;
	}
	request->args[2] = left;
	request->args[4] = program.at;
	return false;
}

static bool make(struct tl_psc *psc, struct tl_request *request)
{
	if (request->nr == TL_NR_PROGRAM)
		return serve_program(psc, request);
	if (tl_plain_execute(request, TL_CALL_ANY)) {
		count(&psc->counts.executed);
		count(&psc->counts.crossings);
	} else {
		count(&psc->counts.refused);
	}
	return true;
}

static void serve(struct tl_psc *psc, uint32_t slot)
{
	struct tl_request *request = &psc->requests[slot];
	uint8_t state = TL_SUBMITTED;

	/* Acquire: see the requester's writes, even if a worker of the module had the request. */
	if (!__atomic_compare_exchange_n(&request->state, &state, TL_RUNNING, false,
					 __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
		if (state == TL_CANCELED) {
			__atomic_store_n(&request->state, TL_FREE, __ATOMIC_RELEASE);
			finish(psc);
			/* A requester that had no slot polls until there is one. */
			tl_psc_pool_signal(psc);
		}
		return;
	}
	if (!make(psc, request)) {
		__atomic_store_n(&request->state, TL_SUBMITTED, __ATOMIC_RELEASE);
		return;
	}
	tl_plain_complete(request);
	if (psc->own.slots)
		report(psc, slot);
	finish(psc);
	tl_psc_pool_signal(psc);
}

/* Reads the bell for up to spin_us. Returns whether it has changed. */
static bool spin(const struct tl_psc *psc, uint32_t bell)
{
	uint64_t end_ns;

	if (!psc->spin_us)
		return false;
	end_ns = tl_psc_now_ns() + psc->spin_us * 1000ull;
	do {
		for (unsigned int i = 0; i < SPINS_PER_CLOCK; i++) {
			if (load(&psc->bell) != bell)
				return true;
			spin_hint();
		}
	} while (tl_psc_now_ns() < end_ns);
	return false;
}

static int sleep_on(struct tl_psc *psc, uint32_t bell)
{
	int result = 0;

	__atomic_fetch_add(&psc->sleepers, 1, __ATOMIC_SEQ_CST);
	if (tl_psc_pool_may_sleep(psc)) {
		count(&psc->counts.sleeps);
		result = futex_wait(&psc->bell, bell);
	}
	__atomic_fetch_sub(&psc->sleepers, 1, __ATOMIC_SEQ_CST);
	return result;
}

long tl_psc_worker_enter(struct tl_psc *psc)
{
	struct psc_turn turn = { 0 };
	long served = 0;
	uint32_t slot;

	for (;;) {
		uint32_t bell = load(&psc->bell);

		if (load(&psc->exiting))
			return served;
		if (claim(psc, &slot)) {
			tl_psc_pool_begin(psc, &turn);
			serve(psc, slot & psc->mask);
			tl_psc_pool_end(psc, &turn);
			served++;
			continue;
		}
		tl_psc_pool_leave(psc, &turn);
		if (!spin(psc, bell) && sleep_on(psc, bell) == -EINTR) {
			tl_psc_pool_quit(psc);
			break;
		}
		if (tl_psc_pool_watch(psc) == -EINTR)
			break;
	}
	/* At the end a caller that enters again could find the ring freed. */
	if (load(&psc->exiting))
		return served;
	count(&psc->counts.interrupted);
	return -EINTR;
}
