// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * Parallel calls: the five operations of parallel-system-call, section 2. It owns slots, the
 * threads of tl_psc_start() and the calls of the module. Results are the business of
 * psc/completion.c, user-space workers that of psc/worker.c, and the handover from the module to
 * them that of psc/handover.c.
 */
#include "psc_state.h"
#include "enter.h"
#include "futex.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#define IDENTITY_TRIES 1000u	/* a millisecond apart */

static size_t object_bytes(unsigned int entries)
{
	size_t bytes = sizeof(struct tl_psc) +
		       (5 * sizeof(uint32_t) + sizeof(uint64_t)) * (size_t)entries;

	/* Without the module the ring lies behind the arrays and begins on a cache line. */
	return ((bytes + 63) & ~(size_t)63) + TL_RING_BYTES(entries);
}

/* Divides the memory behind the structure into its arrays. */
static void set_up_arrays(struct tl_psc *psc, unsigned int entries, bool completions)
{
	psc->user_data = (uint64_t *)(psc + 1);
	psc->free_slots = (uint32_t *)(psc->user_data + entries);
	psc->index_of = psc->free_slots + entries;
	psc->places = psc->index_of + entries;
	if (completions)
		psc->own.slots = psc->places + 2 * entries;
	psc->armed = &psc->own_armed;
	for (uint32_t i = 0; i < entries; i++)
		psc->free_slots[i] = entries - 1 - i;
}

/* Finds requests, submit[] and completions in the ring's memory. */
static void set_up_ring(struct tl_psc *psc, unsigned int entries, bool completions)
{
	char *ring = (char *)psc + object_bytes(entries) - TL_RING_BYTES(entries);

	if (psc->backend == TL_BACKEND_MODULE)
		ring = tl_header_of(psc)->ring;
	psc->requests = (struct tl_request *)(void *)ring;
	psc->submit = (uint32_t *)(void *)(ring + TL_RING_SUBMIT_OFFSET(entries));
	if (completions && psc->backend == TL_BACKEND_MODULE) {
		struct tl_completions *shared =
			(void *)(ring + TL_RING_COMPLETIONS_OFFSET(entries));

		psc->armed = &shared->armed;
		psc->of_module.slots = (uint32_t *)(shared + 1);
	}
}

int tl_psc_create(struct tl_psc **out, unsigned int entries, unsigned int spin_us,
		  unsigned int flags)
{
	bool completions = flags & TL_COMPLETIONS;
	struct tl_setup setup = {
		.size = sizeof(setup),
		.flags = TL_SETUP_WORKERS | (completions ? TL_SETUP_COMPLETIONS : 0),
		.entries = tl_entries_rounded(entries, TL_ENTRIES_MAX),
		.spin_us = spin_us,
	};
	struct tl_psc *psc;
	void *object;
	int result;

	entries = setup.entries;
	if (!entries || spin_us > TL_SPIN_US_MAX)
		return -EINVAL;
	result = tl_object_create(&object, object_bytes(entries));
	if (result)
		return result;
	psc = object;
	result = tl_backend_open(&psc->backend, tl_header_of(psc), &setup,
				 flags & ~TL_COMPLETIONS);
	if (result) {
		tl_object_destroy(psc, true);
		return result;
	}
	set_up_arrays(psc, entries, completions);
	set_up_ring(psc, entries, completions);
	psc->fd = tl_header_of(psc)->fd;
	psc->loop_fd = -1;
	psc->serving = psc->backend == TL_BACKEND_PLAIN;
	psc->entries = entries;
	psc->mask = entries - 1;
	psc->submit_mask = entries - 1;
	psc->spin_us = spin_us;
	psc->wait_left = PSC_NOT_WAITING;
	psc->free_n = entries;
	tl_psc_pool_setup(psc);
	*out = psc;
	return 0;
}

enum tl_backend tl_psc_backend(const struct tl_psc *psc)
{
	return tl_psc_in_module(psc) ? TL_BACKEND_MODULE : TL_BACKEND_PLAIN;
}

/* ---- Workers ----------------------------------------------------------------------------- */

/*
 * setuid(3) changes the credentials of the threads one after the other. Until the last worker with
 * the old credentials has returned, the module answers -EPERM to threads with the new ones. Returns
 * whether the caller should try again.
 */
static bool changing_identity(long result, unsigned int *tries)
{
	static const struct timespec nap = { .tv_nsec = 1000000 };

	if (result != -EPERM || !(*tries)--)
		return false;
	raw_syscall(SYS_nanosleep, (uintptr_t)&nap, 0, 0, 0, 0, 0);
	return true;
}

/*
 * Any answer but a count of the module may be that of a file that has the descriptor now. If it is
 * not, a count without TL_ANSWER comes from a handler of SIGSYS: the module is then left, as where
 * a tracer must see the calls.
 */
static long module_call(const struct tl_psc *psc, uint64_t argument, uint64_t kind)
{
	unsigned int tries = IDENTITY_TRIES;
	long result;
	int error;

	do {
		result = module_enter(psc->fd, psc->requests, argument, kind);
	} while (changing_identity(result, &tries));
	if (result >= TL_ANSWER)
		return result - TL_ANSWER;
	error = tl_ring_check(psc->fd, psc->requests);
	if (error)
		return error;
	return result < 0 ? result : -EBUSY;
}

/* Whether the thread is traced, has another identity for good, or the ring is shut down. */
static bool module_declines(long result)
{
	return result == -EBUSY || result == -EPERM || result == -ESHUTDOWN;
}

static long enter_module(struct tl_psc *psc)
{
	unsigned int tries = IDENTITY_TRIES;
	long result;

	do {
		result = tl_device_ioctl(psc->fd, TL_IOC_ENTER, psc->requests);
	} while (changing_identity(result, &tries));
	if (__atomic_load_n(&psc->exiting, __ATOMIC_SEQ_CST))
		return result < 0 ? 0 : result;
	if (result == -EINTR)
		return result;
	/* Serve as an ordinary thread: the module has refused this thread, or was stopped. */
	tl_psc_stop_module(psc);
	__atomic_fetch_add(&psc->workers_out, 1, __ATOMIC_SEQ_CST);
	tl_psc_wake_all(psc);
	return result < 0 ? 0 : result;
}

long tl_psc_enter(struct tl_psc *psc)
{
	long served = 0, more = 0;

	if (!psc->entries)
		return -EPERM;
	__atomic_fetch_add(&psc->inside, 1, __ATOMIC_SEQ_CST);
	if (tl_psc_in_module(psc))
		served = enter_module(psc);
	if (served >= 0)
		more = tl_psc_worker_enter(psc);
	/* This is the last access: tl_psc_destroy() frees the ring when it sees 0. */
	if (!__atomic_sub_fetch(&psc->inside, 1, __ATOMIC_SEQ_CST))
		futex_wake(&psc->inside, 1);
	if (served < 0)
		return served;
	return more < 0 ? more : served + more;
}

static void *worker(void *arg)
{
	struct tl_psc *psc = arg;

	while (tl_psc_enter(psc) == -EINTR)
		;
	return NULL;
}

int tl_psc_start(struct tl_psc *psc, unsigned int n)
{
	struct tl_object_header *header = tl_header_of(psc);
	sigset_t all, before;
	int result = 0, saved = errno;
	pthread_t *threads;

	if (!psc->entries)
		return -EPERM;
	threads = tl_heap_resize(header->heap, psc->started + (size_t)n, sizeof(*threads));
	if (!threads && n)
		return -ENOMEM;
	header->heap = threads;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (n-- && !result) {
		result = -pthread_create(&threads[psc->started], NULL, worker, psc);
		psc->started += !result;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	errno = saved;	/* pthread_create(3) changes it where memory is short */
	return result;
}

/* ---- Requests ---------------------------------------------------------------------------- */

int tl_psc_add(struct tl_psc *psc, uint32_t nr, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3,
	       uint64_t a4, uint64_t a5)
{
	struct tl_request *request;
	uint32_t slot;

	if (!psc->free_n) {
		tl_psc_free_canceled(psc);
		if (!psc->free_n)
			return -EAGAIN;
	}
	slot = psc->free_slots[--psc->free_n];
	request = &psc->requests[slot];
	request->nr = nr;
	request->args[0] = a0;
	request->args[1] = a1;
	request->args[2] = a2;
	request->args[3] = a3;
	request->args[4] = a4;
	request->args[5] = a5;
	__atomic_store_n(&request->state, TL_SUBMITTED, __ATOMIC_RELEASE);
	__atomic_store_n(&psc->submit[psc->added & psc->submit_mask], slot, __ATOMIC_RELAXED);
	psc->index_of[slot] = psc->added++;
	return (int)slot;
}

static int add_program(struct tl_psc *psc, struct tl_request *requests, unsigned int n,
		       uint64_t steps, unsigned int flags)
{
	if (!n || n > TL_ENTRIES_MAX)
		return -EINVAL;
	for (unsigned int i = 0; i < n; i++)
		requests[i].state = TL_SUBMITTED;
	return tl_psc_add(psc, TL_NR_PROGRAM, (uintptr_t)requests, n, steps, flags, 0,
			  PSC_OWN_PROGRAM);
}

int tl_psc_add_chain(struct tl_psc *psc, struct tl_request *chain, unsigned int n)
{
	return add_program(psc, chain, n, TL_STEPS_DEFAULT, TL_PROGRAM_CHAIN);
}

int tl_psc_add_program(struct tl_psc *psc, struct tl_request *program, unsigned int n,
		       uint64_t steps)
{
	return add_program(psc, program, n, steps, 0);
}

int tl_psc_set_data(struct tl_psc *psc, unsigned int slot, uint64_t user_data)
{
	if (!psc->entries)
		return -EPERM;
	if (slot >= psc->entries)
		return tl_slot_error(slot);
	psc->user_data[slot] = user_data;
	return 0;
}

int tl_psc_notify(struct tl_psc *psc)
{
	uint32_t n = psc->added - psc->notified;
	long result;

	if (!psc->entries)
		return -EPERM;
	if (!tl_psc_in_user_space(psc)) {
		result = module_call(psc, n, TL_ENTER_NOTIFY);
		if (result >= 0) {
			psc->notified = psc->added;
			return (int)n;
		}
		if (!module_declines(result))
			return (int)result;
		tl_psc_hand_over(psc);
	}
	tl_psc_worker_notify(psc);
	return (int)n;
}

static long wait_in_module(const struct tl_psc *psc, uint32_t n, uint32_t left, uint64_t end_ns)
{
	uint64_t now_ns, us = 0;

	if (end_ns != UINT64_MAX) {
		now_ns = tl_psc_now_ns();
		us = end_ns > now_ns ? (end_ns - now_ns + 999) / 1000 : 1;
		if (us > TL_WAIT_US_MAX)
			us = TL_WAIT_US_MAX;
	}
	return module_call(psc, (uint64_t)TL_WAIT_US(n, left, us), TL_ENTER_WAIT);
}

/* Waits once; those that were canceled count as unfinished until a worker has come to them. */
static int wait_once(struct tl_psc *psc, uint32_t left, uint64_t end_ns)
{
	uint32_t n = psc->added - psc->notified;
	long result;

	if (!tl_psc_in_user_space(psc)) {
		result = wait_in_module(psc, n, left, end_ns);
		/*
		 * The module submits the requests before it sleeps. It may have been shut down
		 * before that or during the sleep. If all requests count as submitted, the handover
		 * gives each of them a new place unless the module has begun it.
		 */
		if (result >= 0 || result == -EINTR || result == -ESHUTDOWN || result == -ETIME)
			psc->notified = psc->added;
		if (!module_declines(result))
			return (int)result;
		tl_psc_hand_over(psc);
	}
	tl_psc_worker_notify(psc);
	return tl_psc_worker_wait(psc, left, end_ns);
}

static int wait_until(struct tl_psc *psc, unsigned int left, uint64_t end_ns)
{
	uint32_t ahead;
	int n;

	if (!psc->entries)
		return -EPERM;
	if (left > psc->entries)
		left = psc->entries;
	for (;;) {
		ahead = psc->canceled_n ? tl_psc_canceled_ahead(psc) : 0;
		n = wait_once(psc, left + ahead, end_ns);
		if (n == -ETIME && tl_psc_now_ns() < end_ns)
			continue;
		if (n < 0 || !ahead)
			return n;
		/*
		 * n includes all canceled requests that are ahead now, and perhaps some that
		 * were.
		 */
		n -= (int)tl_psc_canceled_ahead(psc);
		if (n <= (int)left)
			return n;
	}
}

int tl_psc_wait(struct tl_psc *psc, unsigned int left)
{
	return wait_until(psc, left, UINT64_MAX);
}

int tl_psc_wait_for(struct tl_psc *psc, unsigned int left, uint64_t timeout_ns)
{
	uint64_t now_ns = tl_psc_now_ns();

	return wait_until(psc, left,
			  timeout_ns < UINT64_MAX - now_ns ? now_ns + timeout_ns : UINT64_MAX);
}

int tl_psc_get_stats(const struct tl_psc *psc, struct tl_stats *stats)
{
	struct tl_stats own = { 0 };

	if (!psc->entries)
		return -EPERM;
#define TL_COUNT(member, offset) \
	own.member = __atomic_load_n(&psc->counts.member, __ATOMIC_RELAXED);
#include <linux/trapless_fields.h>
	if (psc->backend == TL_BACKEND_PLAIN)
		return tl_stats_copy(stats, &own);
	return tl_stats_module(psc->fd, psc->requests, stats, &own);
}

/*
 * The descriptor is lost, and the module makes workers return when it finds the ring unmapped.
 * Other memory takes its place at once, for workers that are about to complete a request.
 */
static void unmap_ring(const struct tl_psc *psc)
{
	const struct tl_object_header *header = tl_header_of((void *)(uintptr_t)psc);

	raw_syscall(SYS_mmap, (uintptr_t)header->ring, header->ring_bytes, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, (uint64_t)-1, 0);
}

void tl_psc_exit(struct tl_psc *psc)
{
	__atomic_store_n(&psc->exiting, 1, __ATOMIC_SEQ_CST);
	if (psc->backend == TL_BACKEND_MODULE &&
	    tl_device_ioctl(psc->fd, TL_IOC_EXIT, psc->requests))
		unmap_ring(psc);
	tl_psc_wake_all(psc);
}

void tl_psc_destroy(struct tl_psc *psc)
{
	pthread_t *threads;
	uint32_t inside;

	if (!psc)
		return;
	if (!psc->entries) {
		tl_object_destroy(psc, false);
		return;
	}
	tl_psc_exit(psc);
	threads = tl_header_of(psc)->heap;
	while (psc->started)
		pthread_join(threads[--psc->started], NULL);
	while ((inside = __atomic_load_n(&psc->inside, __ATOMIC_SEQ_CST)))
		futex_wait(&psc->inside, inside);
	tl_object_destroy(psc, true);
}
