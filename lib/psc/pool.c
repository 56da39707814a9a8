// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * How many user-space workers of a ring are awake. It owns which workers are woken for requests,
 * and the clock that decides it; worker.c claims and makes the requests.
 *
 * A wake-up costs as much as several quick calls, so one awake worker makes quick calls one after
 * the other. A call that blocks must not delay those behind it, and nobody tells user space that a
 * call blocks. So one more worker watches while requests wait: it sleeps for WATCH_NS at a time and
 * looks whether requests were taken meanwhile. If calls take longer than that, it takes part, wakes
 * others, and leaves the watch to the next one. After two such looks in a row the ring is eager:
 * each request wakes a worker, until EAGER_CALLS calls in a row were quick. A call that began while
 * the ring was eager, and lasts, makes it eager again.
 *
 * Nothing is lost: notify wakes a worker unless one watches others that make calls, and a worker
 * that ends its watch looks at the queue afterwards. If the last of those others is about to sleep,
 * it returns, because notify has changed the bell. A worker that was counted as asleep returns from
 * its sleep, because the bell changes whenever a watcher is wanted, and finds that one is. If a
 * signal handler has ended its sleep, it leaves and wakes another one in its place.
 */
#include "psc_state.h"
#include "futex.h"

#include <errno.h>
#include <sched.h>
#include <time.h>

#define WATCH_NS 50000u
#define EAGER_CALLS 64u
#define SIGNAL_CALLS 16u	/* completions that may wait for one signal */

/* Values of pool.watch. */
#define NOBODY 0u
#define WANTED 1u	/* a worker was woken, and the first that is free watches */
#define WATCHED 2u

#define GENERATION(pool) ((pool) >> 32)
#define RUNNING(pool) ((uint32_t)(pool))

static uint32_t load(const uint32_t *word)
{
	return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

static uint64_t load_running(const struct tl_psc *psc)
{
	return __atomic_load_n(&psc->pool.running, __ATOMIC_SEQ_CST);
}

static bool change(uint32_t *word, uint32_t from, uint32_t to)
{
	return __atomic_compare_exchange_n(word, &from, to, false, __ATOMIC_SEQ_CST,
					   __ATOMIC_SEQ_CST);
}

static uint32_t waiting(const struct tl_psc *psc)
{
	return load(&psc->serving) ? load(&psc->notified) - load(&psc->taken) : 0;
}

static void wake(struct tl_psc *psc, uint32_t n)
{
	uint32_t sleepers = load(&psc->sleepers);

	if (!n || !sleepers)
		return;
	__atomic_fetch_add(&psc->counts.wakeups, 1, __ATOMIC_RELAXED);
	futex_wake(&psc->bell, n < sleepers ? (int)n : (int)sleepers);
}

/*
 * If no worker watches the waiting requests, wakes a sleeping one to do so. A worker that is about
 * to sleep, and has not seen that a watcher is wanted, finds that the bell has changed.
 */
static void want_watcher(struct tl_psc *psc)
{
	if (load(&psc->pool.watch) != NOBODY || !load(&psc->sleepers) ||
	    !change(&psc->pool.watch, NOBODY, WANTED))
		return;
	__atomic_fetch_add(&psc->bell, 1, __ATOMIC_SEQ_CST);
	wake(psc, 1);
}

bool tl_psc_pool_may_sleep(const struct tl_psc *psc)
{
	return load(&psc->pool.watch) != WANTED;
}

uint64_t tl_psc_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void tl_psc_pool_setup(struct tl_psc *psc)
{
	cpu_set_t cpus;
	int saved = errno;

	psc->pool.cpus = sched_getaffinity(0, sizeof(cpus), &cpus) ? 1 : (uint32_t)CPU_COUNT(&cpus);
	errno = saved;
}

void tl_psc_pool_notify(struct tl_psc *psc, uint32_t n)
{
	if (load(&psc->pool.eager))
		wake(psc, n);
	else if (load(&psc->pool.watch) == WATCHED && !RUNNING(load_running(psc)))
		/* Nobody makes calls, and the watcher sleeps until its interval is over. */
		wake(psc, 1);
	else
		want_watcher(psc);
}

/* ---- Calls ------------------------------------------------------------------------------- */

/* Counts the worker as one that takes requests, unless it is counted already. */
static void count_in(struct tl_psc *psc, struct psc_turn *turn)
{
	uint64_t running = load_running(psc);

	if (turn->counted && GENERATION(running) == turn->generation)
		return;
	running = __atomic_fetch_add(&psc->pool.running, 1, __ATOMIC_SEQ_CST);
	turn->generation = GENERATION(running);
	turn->counted = true;
}

void tl_psc_pool_begin(struct tl_psc *psc, struct psc_turn *turn)
{
	count_in(psc, turn);
	turn->begin_ns = 0;
	if (load(&psc->pool.eager))
		turn->begin_ns = tl_psc_now_ns();
	else if (waiting(psc))
		want_watcher(psc);
}

/*
 * From now on each request wakes a worker, and no worker asks for a watcher. So what waits already,
 * which woke one worker only, wakes workers here. Pairs with tl_psc_worker_notify(), which stores
 * `notified` before it reads `eager`.
 */
static void become_eager(struct tl_psc *psc)
{
	if (!__atomic_exchange_n(&psc->pool.eager, EAGER_CALLS, __ATOMIC_SEQ_CST))
		wake(psc, waiting(psc));
}

void tl_psc_pool_end(struct tl_psc *psc, const struct psc_turn *turn)
{
	uint32_t eager;

	if (!turn->begin_ns)
		return;
	eager = load(&psc->pool.eager);
	if (tl_psc_now_ns() - turn->begin_ns > WATCH_NS)
		become_eager(psc);
	else if (eager)
		/* If another worker has changed it, this quick call is not counted: no matter. */
		change(&psc->pool.eager, eager, eager - 1);
}

/*
 * The requester is told of several completions by one signal: the worker leaves the signal to a
 * later completion while requests wait and a watcher would give it if that call blocked. A watcher
 * that was only woken counts, too: it may have to wait for a processor, but a call that blocks
 * leaves it one.
 */
void tl_psc_pool_signal(struct tl_psc *psc)
{
	uint32_t silent = __atomic_add_fetch(&psc->pool.silent, 1, __ATOMIC_SEQ_CST);

	/* Pairs with those who store NOBODY to `watch` before they read `silent`. */
	if (silent < SIGNAL_CALLS && waiting(psc) && load(&psc->pool.watch) != NOBODY)
		return;
	__atomic_store_n(&psc->pool.silent, 0, __ATOMIC_SEQ_CST);
	tl_psc_signal(psc);
}

static void signal_silent(struct tl_psc *psc)
{
	if (load(&psc->pool.silent) &&
	    __atomic_exchange_n(&psc->pool.silent, 0, __ATOMIC_SEQ_CST))
		tl_psc_signal(psc);
}

void tl_psc_pool_leave(struct tl_psc *psc, struct psc_turn *turn)
{
	uint64_t running = load_running(psc);

	if (!turn->counted)
		return;
	turn->counted = false;
	/* A worker of an earlier generation counts as blocked and is not in `running` any more. */
	while (GENERATION(running) == turn->generation &&
	       !__atomic_compare_exchange_n(&psc->pool.running, &running, running - 1, true,
					    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
}

/* ---- The watch --------------------------------------------------------------------------- */

/* The workers that run now count as blocked. Wakes workers, more with each look that found so. */
static void pass_over(struct tl_psc *psc, uint64_t running)
{
	uint64_t next = (GENERATION(running) + 1) << 32;

	if (!__atomic_compare_exchange_n(&psc->pool.running, &running, next, false,
					 __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		return;
	if (psc->pool.blocked_looks++)
		become_eager(psc);
}

/* One look at the ring. Returns 0 if the watcher is to take part, -EAGAIN to look again, -EINTR. */
static int look(struct tl_psc *psc)
{
	static const struct timespec interval = { .tv_nsec = WATCH_NS };
	uint32_t taken = load(&psc->taken), progress;
	uint64_t running = load_running(psc);

	if (!RUNNING(running) || !waiting(psc) || load(&psc->exiting))
		return 0;
	/* Not at the bell: there it would be woken in the place of a worker that sleeps. */
	if (futex_wait_for(&psc->pool.watch, WATCHED, &interval) == -EINTR)
		return -EINTR;
	signal_silent(psc);
	if (!waiting(psc))
		return 0;
	progress = load(&psc->taken) - taken;
	if (progress < RUNNING(running)) {
		pass_over(psc, running);
		return 0;
	}
	psc->pool.blocked_looks = 0;
	return RUNNING(running) < psc->pool.cpus ? 0 : -EAGAIN;
}

void tl_psc_pool_quit(struct tl_psc *psc)
{
	if (!change(&psc->pool.watch, WANTED, NOBODY))
		return;
	signal_silent(psc);
	if (waiting(psc))
		want_watcher(psc);
}

int tl_psc_pool_watch(struct tl_psc *psc)
{
	int result;

	if (load(&psc->pool.watch) != WANTED || !change(&psc->pool.watch, WANTED, WATCHED))
		return 0;
	do {
		result = look(psc);
	} while (result == -EAGAIN);
	__atomic_store_n(&psc->pool.watch, NOBODY, __ATOMIC_SEQ_CST);
	signal_silent(psc);
	if (result == -EINTR && waiting(psc))
		want_watcher(psc);
	return result;
}
