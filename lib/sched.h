/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * sched.h - the scheduler's state and its queues, shared by sched.c (calls, flushing, running) and,
 * below that, event.c (external events) and thread.c (fine-grained threads). One scheduler belongs
 * to one thread of the process; nothing here is locked, and only `stop` may be written by others (a
 * signal handler).
 */
#ifndef TRAPLESS_LIB_SCHED_H
#define TRAPLESS_LIB_SCHED_H

#include <poll.h>
#include <trapless.h>

struct tl_thread {
	struct tl_thread *next;		/* in the ready queue or among the unused */
	struct tl_sched *sched;
	tl_entry entry;
	void *arg;
	uint32_t missing;		/* synchronisations that have not arrived */
	uint32_t unclaimed;		/* ... of which no queued call will deliver */
	int event_fd;			/* created by an event of this descriptor, or -1 */
};

/* Whom the call in a slot of the ring synchronises. */
struct tl_call_record {
	struct tl_thread *continuation;
	int64_t *result;
};

struct tl_event {
	tl_entry entry;
	void *arg;
	struct tl_thread *thread;	/* of the last event, until it has run; NULL: look again */
};

struct tl_sched {
	struct tl_batch *batch;
	struct tl_call_record *calls;	/* one a slot */
	struct tl_thread *ready;	/* oldest first */
	struct tl_thread **ready_end;
	uint32_t flush_at;
	uint32_t awaited;		/* queued calls that have a continuation */
	uint32_t turns;			/* threads run since the last look at the events */
	bool unordered;			/* calls of one flush may be made in any order */
	bool running;
	bool stop;
	uint64_t deadline_ns;
	uint64_t oldest_ns;		/* when the oldest queued call was queued */
	struct tl_thread *unused;
	struct pool *pools;

	struct tl_event *events;	/* events_n of them, parallel to polls */
	struct pollfd *polls;
	uint32_t events_n;
	uint32_t events_room;
	int poll_slot;			/* of the queued poll, or -1 */
	int64_t poll_result;

	struct tl_sched_stats stats;
};

/* ---- The queues: of threads that are ready, of unused ones, of calls --------------------- */

static inline void thread_ready(struct tl_thread *thread)
{
	struct tl_sched *sched = thread->sched;

	thread->next = NULL;
	*sched->ready_end = thread;
	sched->ready_end = &thread->next;
}

static inline struct tl_thread *thread_next(struct tl_sched *sched)
{
	struct tl_thread *thread = sched->ready;

	sched->ready = thread->next;
	if (!sched->ready)
		sched->ready_end = &sched->ready;
	return thread;
}

static inline void thread_put(struct tl_thread *thread)
{
	struct tl_sched *sched = thread->sched;

	thread->next = sched->unused;
	sched->unused = thread;
}

/* One of the synchronisations that the thread waits for has arrived. */
static inline void thread_deliver(struct tl_thread *thread)
{
	if (!--thread->missing)
		thread_ready(thread);
}

/* Queue a call without bookkeeping of synchronisations. Returns the slot or -EAGAIN. */
static inline int sched_queue(struct tl_sched *sched, struct tl_thread *continuation,
			      int64_t *result, uint32_t nr, uint64_t a0, uint64_t a1, uint64_t a2,
			      uint64_t a3, uint64_t a4, uint64_t a5)
{
	int slot = tl_batch_add(sched->batch, nr, a0, a1, a2, a3, a4, a5);

	if (slot >= 0) {
		sched->calls[slot].continuation = continuation;
		sched->calls[slot].result = result;
	}
	return slot;
}

/* ---- thread.c, event.c ------------------------------------------------------------------ */

void tl_threads_free(struct tl_sched *sched);

/* event.c. Queue a poll of all armed events with the calls that are about to be flushed ... */
void tl_events_poll(struct tl_sched *sched, bool may_sleep);
/*
 * ... and afterwards create the threads of those that have happened. Returns 0, -ENOMEM, or why
 * poll(2) could not be made.
 */
int tl_events_deliver(struct tl_sched *sched);
/* The event's thread has run: look at the descriptor again. */
void tl_event_rearm(struct tl_sched *sched, const struct tl_thread *thread);
void tl_events_free(struct tl_sched *sched);

#endif /* TRAPLESS_LIB_SCHED_H */
