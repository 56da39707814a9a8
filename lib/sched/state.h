/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * A scheduler as its files know it: its threads (thread.c), what they wait for (event.c, watch.c,
 * timer.c), how it is made (setup.c), and when it does what (sched.c).
 *
 * Concurrency: one scheduler belongs to one thread of the process. Nothing is locked, and a signal
 * handler may write `stop` alone.
 */
#ifndef TRAPLESS_LIB_SCHED_STATE_H
#define TRAPLESS_LIB_SCHED_STATE_H

#include <sys/epoll.h>
#include <trapless.h>

#include "internal.h"

#define TIME_NEVER UINT64_MAX
#define EVENTS_FOUND_MAX 64	/* descriptors of one look */

/* ---- Threads ------------------------------------------------------------------------------- */

struct thread {
	struct tl_thread head;		/* the part that callers and inline functions see */
	struct registration *event;	/* whose event has created it, or NULL */
	struct thread *wait_next;	/* in the list of those that wait for watch */
	int64_t *wait_result;
	uint64_t wait_due_ns;		/* when its wait ends, or TIME_NEVER */
	struct watch *watch;		/* of the descriptor that it waits for, or NULL */
	uint32_t wait_events;
	uint32_t timer;			/* its place among the timers, from 1 on, or 0 */
	bool waits;			/* the fields above are valid; wait_due_ns is always */
};

struct threads {
	struct tl_thread *ready;	/* oldest first */
	struct tl_thread **ready_end;
	struct tl_thread *unused;
	struct thread_pool *pools;
};

static inline struct thread *thread_of(struct tl_thread *thread)
{
	return (struct thread *)(void *)thread;
}

static inline void thread_ready(struct threads *threads, struct thread *thread)
{
	thread->head.next = NULL;
	*threads->ready_end = &thread->head;
	threads->ready_end = &thread->head.next;
}

/* Takes the oldest ready thread, which is `thread`. */
static inline void thread_take(struct threads *threads, struct thread *thread)
{
	threads->ready = thread->head.next;
	if (!threads->ready)
		threads->ready_end = &threads->ready;
}

/* Keeps the thread's memory for another one. */
static inline void thread_put(struct threads *threads, struct thread *thread)
{
	thread->head.next = threads->unused;
	threads->unused = &thread->head;
}

/* One of the synchronisations that the thread waits for has arrived. */
static inline void thread_deliver(struct threads *threads, struct thread *thread)
{
	if (!--thread->head.missing)
		thread_ready(threads, thread);
}

/* Frees the memory of all threads. */
void tl_threads_free(struct threads *threads);

/* ---- What they wait for -------------------------------------------------------------------- */

/* One tl_event_add(). */
struct registration {
	struct registration *next;	/* of the same descriptor, or unused */
	struct watch *watch;
	tl_entry entry;
	void *arg;
	struct thread *thread;		/* of the last event until it has ended, else NULL */
	uint32_t events;
	uint32_t pending;		/* with EPOLLET: what the descriptor has shown meanwhile */
};

/* What is known of a descriptor. Its address does not change. */
struct watch {
	struct registration *registrations;
	struct thread *waiters;		/* threads of tl_wait() */
	struct watch *control_next;	/* in the list of queued epoll_ctl(2) */
	int64_t control;		/* result of the last one */
	uint32_t interest;		/* what the kernel's set has; 0: it is not in the set */
	uint32_t ready;			/* with EPOLLET: what it has shown and nobody has taken */
	int fd;
	uint16_t generation;		/* counts removals: an event of an older one is stale */
	bool controlled;		/* it is in the list */
	bool unheard;			/* the last look has shown what nobody wanted */
};

/* A time and a thread. The thread's wait ends at that time or, by now, at a later one. */
struct timer {
	uint64_t due_ns;
	struct thread *thread;
};

struct events {
	struct tl_set set;		/* the kernel's epoll set; fd is -1 before the first use */
	int timer_fd;			/* in the set, so that the set shows a due time; or -1 */
	uint32_t mark;			/* in what the set tells of descriptors */
	uint64_t armed_ns;		/* when timer_fd expires, or TIME_NEVER */
	uint64_t tick_ns;		/* resolution of the clock */
	struct watch **chunks;		/* of all descriptors, CHUNK_WATCHES each */
	uint32_t chunks_n;
	uint32_t registrations_n;
	uint32_t waits_n;
	struct registration *unused;
	struct watch *controls;
	bool adding;			/* one of them may fail, and a thread then has to know it */
	struct epoll_event *control_events;	/* an argument of the call in each slot */
	struct timer *timers;		/* a heap, the earliest first */
	uint32_t timers_n;
	uint32_t timers_room;
	int64_t looked;			/* result of the look, or LOOK_NONE */
	struct epoll_event found[EVENTS_FOUND_MAX];
};

#define LOOK_NONE INT64_MIN	/* no result is there */
#define CONTROL_QUEUED INT64_MIN	/* the same, of an epoll_ctl(2) */
/*
 * The word that the set reports for a descriptor: its number plus 1, in the lower half, and a mark
 * that no other set has: the scheduler's own number, and how often the descriptor was removed. 0 is
 * timer_fd.
 */
#define DATA_BITS 32
#define CHUNK_WATCHES 64u

/* What is known of a descriptor, or NULL. */
static inline struct watch *watch_find(const struct events *events, uint32_t fd)
{
	uint32_t chunk = fd / CHUNK_WATCHES;

	if (chunk >= events->chunks_n || !events->chunks[chunk])
		return NULL;
	return &events->chunks[chunk][fd % CHUNK_WATCHES];
}

static inline bool events_exist(const struct events *events)
{
	return events->registrations_n || events->waits_n;
}

/* ---- watch.c ----------------------------------------------------------------------------- */

void tl_events_init(struct events *events);
void tl_events_free(struct events *events);
/* Makes the epoll set if there is none yet. Returns 0 or -errno. */
int tl_events_open(struct tl_sched *sched);
/* Is the set still the scheduler's? 0, -EBADF or -EINVAL. */
int tl_events_check(const struct events *events);
/* Returns the watch that an event of the set is about, or NULL if it is stale or not ours. */
struct watch *tl_watch_of(const struct events *events, uint64_t data);
/* Returns what is known of a descriptor, or NULL if there is no memory. */
struct watch *tl_watch_get(struct events *events, int fd);
/* Make an epoll_ctl(2) for the watch as it is, at once, or queue it. They return 0 or -errno. */
int tl_watch_control(const struct events *events, const struct watch *watch, int op);
int tl_watch_control_queue(struct tl_sched *sched, struct watch *watch, int op);
/* Makes the set show at least `wanted`. Returns 0 or -errno. */
int tl_watch_want(struct tl_sched *sched, struct watch *watch, uint32_t wanted);
/* Nobody has wanted what the descriptor shows at each look: the set asks for less. */
int tl_watch_want_less(struct tl_sched *sched, struct watch *watch);
/* Sets timer_fd, if there is one, to when something is due. */
void tl_events_arm(struct tl_sched *sched);

/* ---- event.c: the functions return 0 or -errno ------------------------------------------- */

/* Some epoll_ctl(2) may be complete. */
void tl_events_controlled(struct tl_sched *sched);
/* A look is complete: synchronises and creates threads. */
int tl_events_looked(struct tl_sched *sched);
/* Ends the waits whose time has come. */
void tl_events_expire(struct tl_sched *sched);
/* The thread has ended, and has an event or a timer. */
int tl_events_thread_ended(struct tl_sched *sched, struct thread *thread);

/* ---- timer.c ----------------------------------------------------------------------------- */

/* Sets wait_due_ns of a thread that begins to wait. Returns 0 or -ENOMEM. */
int tl_timer_set(struct events *events, struct thread *thread, int64_t timeout_ns);
/* Takes a thread that stands in the heap out of it. */
void tl_timer_drop(struct events *events, struct thread *thread);
/* Returns a thread whose wait ends now, which is then no longer in the heap, or NULL. */
struct thread *tl_timer_expired(struct events *events);
/* Returns when the next wait ends, or TIME_NEVER. */
uint64_t tl_timers_next(struct events *events);
/* How long epoll_wait(2) may sleep if limit_ns is the limit, in milliseconds; -1 is none. */
int tl_events_timeout_ms(struct events *events, int64_t limit_ns);

/* ---- The scheduler ------------------------------------------------------------------------- */

struct tl_sched {
	struct tl_sched_head head;	/* first: the part that inline functions see */
	struct threads threads;
	struct thread *current;		/* the thread that runs, or NULL */
	struct events events;
	struct tl_request *look;	/* the queued look at the events, or NULL */
	uint32_t flush_at;
	uint32_t rounds;		/* flushes since the last look at the events */
	bool unordered;			/* the calls of one flush may be made in any order */
	bool running;
	bool stop;
	uint64_t deadline_ns;
	uint64_t oldest_ns;		/* when the oldest queued call was queued, or 0 */
	uint64_t own_calls;		/* calls that the scheduler has queued itself */
	uint64_t own_crossings;		/* crossings that were made beside the batch */
	struct tl_sched_stats stats;
};

#endif /* TRAPLESS_LIB_SCHED_STATE_H */
