/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * sched.h - a scheduler as its three files know it: threads (thread.c), what they wait for
 * (event.c), and when they run (sched.c).
 *
 * Concurrency: one scheduler belongs to one thread of the process. Nothing is locked, and a signal
 * handler may write `stop` alone.
 */
#ifndef TRAPLESS_LIB_SCHED_H
#define TRAPLESS_LIB_SCHED_H

#include "event.h"
#include "thread.h"

struct tl_sched {
	struct tl_sched_head head;	/* first: the part that inline functions see */
	struct threads threads;
	struct thread *current;		/* the thread that runs, or NULL */
	struct events events;
	uint32_t flush_at;
	uint32_t rounds;		/* flushes since the last look at the events */
	bool unordered;			/* the calls of one flush may be made in any order */
	bool look_queued;		/* the newest queued call is a look */
	bool running;
	bool stop;
	uint64_t deadline_ns;
	uint64_t oldest_ns;		/* when the oldest queued call was queued, or 0 */
	uint64_t own_calls;		/* calls of the batch that the scheduler itself has queued */
	uint64_t own_crossings;		/* crossings that were made beside the batch */
	struct tl_sched_stats stats;
};

/*
 * Makes all queued calls. Returns 0 or -errno. After a signal handler has stopped the scheduler,
 * calls may still be queued.
 */
int tl_sched_flush(struct tl_sched *sched);

#endif /* TRAPLESS_LIB_SCHED_H */
