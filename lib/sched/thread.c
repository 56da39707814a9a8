// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * Fine-grained threads. It owns their memory and the number of synchronisations that each of them
 * still waits for. When a thread runs is the business of sched.c.
 */
#include "state.h"

#include <errno.h>
#include <stdlib.h>

#define POOL_THREADS 126u	/* threads of one allocation */

struct thread_pool {
	struct thread_pool *next;
	struct thread threads[POOL_THREADS];
};

/* Programs have the inline functions compiled in. */
_Static_assert(sizeof(struct tl_thread) == 48 && offsetof(struct tl_thread, entry) == 16 &&
	       offsetof(struct tl_thread, missing) == 32 &&
	       offsetof(struct tl_thread, events) == 40,
	       "the layout is part of the binary interface");

static int pool_grow(struct threads *threads)
{
	struct thread_pool *pool = tl_heap_resize(NULL, 1, sizeof(*pool));

	if (!pool)
		return -ENOMEM;
	pool->next = threads->pools;
	threads->pools = pool;
	for (unsigned int i = POOL_THREADS; i > 0; i--) {
		struct thread *thread = &pool->threads[i - 1];

		thread->event = NULL;
		thread->wait_due_ns = TIME_NEVER;
		thread->timer = 0;
		thread->waits = false;
		thread_put(threads, thread);
	}
	return 0;
}

int tl_thread_create(struct tl_sched *sched, struct tl_thread **out, tl_entry entry, void *arg,
		     unsigned int syncs)
{
	struct threads *threads = &sched->threads;
	struct thread *thread = thread_of(threads->unused);

	if (!thread) {
		if (pool_grow(threads))
			return -ENOMEM;
		thread = thread_of(threads->unused);
	}
	threads->unused = thread->head.next;
	thread->head.sched = sched;
	thread->head.entry = entry;
	thread->head.arg = arg;
	thread->head.missing = syncs;
	thread->head.unclaimed = syncs;
	thread->head.events = 0;
	if (out)
		*out = &thread->head;
	if (!syncs)
		thread_ready(threads, thread);
	return 0;
}

int tl_thread_sync(struct tl_thread *thread)
{
	if (!thread->unclaimed)
		return -EINVAL;
	thread->unclaimed--;
	thread_deliver(&thread->sched->threads, thread_of(thread));
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
