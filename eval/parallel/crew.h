/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A ring of parallel calls and the threads that serve it: started by the library's own call, known
 * by their thread ids, placed on a CPU. It makes no request.
 */
#ifndef EVAL_CREW_H
#define EVAL_CREW_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <trapless.h>

#define WORKERS_MAX 16u

struct crew {
	struct tl_psc *psc;
	unsigned int workers;
	pid_t tids[WORKERS_MAX];
	uint64_t served[WORKERS_MAX];	/* gettid tells who served */
};

/* `flags` are tl_psc_create()'s. */
void crew_open(struct crew *crew, unsigned int entries, unsigned int workers, unsigned int spin_us,
	       unsigned int flags);
/* cpu: pin the workers there, -1: do not; idle: SCHED_IDLE, they never preempt the requester. */
void crew_place(struct crew *crew, int cpu, bool idle);
void crew_close(struct crew *crew);

#endif /* EVAL_CREW_H */
