/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * thread.h - fine-grained threads and the two queues of a scheduler's threads: those that are ready
 * and those that are unused. It knows nothing else of a scheduler; sched.c decides when a thread
 * runs.
 *
 * Concurrency: as of the scheduler. One thread of the process uses it at a time; nothing is locked.
 */
#ifndef TRAPLESS_LIB_THREAD_H
#define TRAPLESS_LIB_THREAD_H

#include <trapless.h>

struct tl_thread {
	struct tl_thread *next;		/* in the queue of ready or of unused threads */
	struct tl_sched *sched;
	tl_entry entry;
	void *arg;
	uint32_t missing;		/* synchronisations that have not arrived */
	uint32_t unclaimed;		/* missing ones that no queued call will deliver */
	int event_fd;			/* descriptor whose event created the thread, or -1 */
};

/* A scheduler begins with this structure: see threads_of(). */
struct threads {
	struct tl_thread *ready;	/* oldest first */
	struct tl_thread **ready_end;
	struct tl_thread *unused;
	struct thread_pool *pools;
};

static inline struct threads *threads_of(struct tl_sched *sched)
{
	return (struct threads *)(void *)sched;
}

static inline void thread_ready(struct tl_thread *thread)
{
	struct threads *threads = threads_of(thread->sched);

	thread->next = NULL;
	*threads->ready_end = thread;
	threads->ready_end = &thread->next;
}

/* Takes the oldest ready thread; there must be one. */
static inline struct tl_thread *thread_next(struct threads *threads)
{
	struct tl_thread *thread = threads->ready;

	threads->ready = thread->next;
	if (!threads->ready)
		threads->ready_end = &threads->ready;
	return thread;
}

/* Keeps the thread's memory for another one. */
static inline void thread_put(struct tl_thread *thread)
{
	struct threads *threads = threads_of(thread->sched);

	thread->next = threads->unused;
	threads->unused = thread;
}

/* One of the synchronisations that the thread waits for has arrived. */
static inline void thread_deliver(struct tl_thread *thread)
{
	if (!--thread->missing)
		thread_ready(thread);
}

/* Frees the memory of all threads. */
void tl_threads_free(struct threads *threads);

#endif /* TRAPLESS_LIB_THREAD_H */
