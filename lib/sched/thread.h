/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * thread.h - fine-grained threads and the two queues of a scheduler's threads: those that are ready
 * and those that are unused. It knows nothing else of a scheduler; sched.c decides when a thread
 * runs, and event.c what it waits for.
 *
 * Concurrency: as of the scheduler. One thread of the process uses it at a time; nothing is locked.
 */
#ifndef TRAPLESS_LIB_THREAD_H
#define TRAPLESS_LIB_THREAD_H

#include <trapless.h>

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
	struct thread *ready;		/* oldest first */
	struct thread **ready_end;
	struct thread *unused;
	struct thread_pool *pools;
};

static inline struct thread *thread_of(struct tl_thread *thread)
{
	return (struct thread *)(void *)thread;
}

static inline struct thread *thread_after(const struct thread *thread)
{
	return thread_of(thread->head.next);
}

static inline void thread_ready(struct threads *threads, struct thread *thread)
{
	thread->head.next = NULL;
	*threads->ready_end = thread;
	threads->ready_end = (struct thread **)(void *)&thread->head.next;
}

/* Takes the oldest ready thread, which is `thread`. */
static inline void thread_take(struct threads *threads, struct thread *thread)
{
	threads->ready = thread_after(thread);
	if (!threads->ready)
		threads->ready_end = &threads->ready;
}

/* Keeps the thread's memory for another one. */
static inline void thread_put(struct threads *threads, struct thread *thread)
{
	thread->head.next = &threads->unused->head;
	threads->unused = thread;
}

/* One of the synchronisations that the thread waits for has arrived. */
static inline void thread_deliver(struct threads *threads, struct thread *thread)
{
	if (!--thread->head.missing)
		thread_ready(threads, thread);
}

/* Frees the memory of all threads. */
void tl_threads_free(struct threads *threads);

#endif /* TRAPLESS_LIB_THREAD_H */
