// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * thread.c - fine-grained threads. It owns their memory and the number of synchronisations that
 * each of them still waits for. When a thread runs is the business of sched.c.
 */
#include "thread.h"
#include "internal.h"

#include <errno.h>
#include <stdlib.h>

#define POOL_THREADS 126u	/* threads of one allocation */

struct thread_pool {
	struct thread_pool *next;
	struct tl_thread threads[POOL_THREADS];
};

static struct tl_thread *thread_get(struct threads *threads)
{
	struct tl_thread *thread = threads->unused;
	struct thread_pool *pool;

	if (thread) {
		threads->unused = thread->next;
		return thread;
	}
	pool = tl_heap_resize(NULL, 1, sizeof(*pool));
	if (!pool)
		return NULL;
	pool->next = threads->pools;
	threads->pools = pool;
	for (unsigned int i = POOL_THREADS - 1; i > 0; i--) {
		pool->threads[i].next = threads->unused;
		threads->unused = &pool->threads[i];
	}
	return &pool->threads[0];
}

int tl_thread_create(struct tl_sched *sched, struct tl_thread **out, tl_entry entry, void *arg,
		     unsigned int syncs)
{
	struct tl_thread *thread = thread_get(threads_of(sched));

	if (!thread)
		return -ENOMEM;
	thread->sched = sched;
	thread->entry = entry;
	thread->arg = arg;
	thread->missing = syncs;
	thread->unclaimed = syncs;
	thread->event_fd = -1;
	if (out)
		*out = thread;
	if (!syncs)
		thread_ready(thread);
	return 0;
}

int tl_thread_sync(struct tl_thread *thread)
{
	if (!thread->unclaimed)
		return -EINVAL;
	thread->unclaimed--;
	thread_deliver(thread);
	return 0;
}

struct tl_sched *tl_thread_sched(const struct tl_thread *self)
{
	return self->sched;
}

void tl_threads_free(struct threads *threads)
{
	struct thread_pool *pool;

	while ((pool = threads->pools)) {
		threads->pools = pool->next;
		free(pool);
	}
}
