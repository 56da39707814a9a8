/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * psc_state.h - the state of a ring of parallel calls. psc.c (the five operations), psc/worker.c
 * (workers in user space) and psc/handover.c (the handover from the module to those workers) share
 * it.
 *
 * Concurrency: only the requester writes requests, submit[], added, notified and the free slots.
 * Only workers write taken, results, and states from TL_RUNNING on. Fields that both sides access
 * are atomic.
 */
#ifndef TRAPLESS_LIB_PSC_STATE_H
#define TRAPLESS_LIB_PSC_STATE_H

#include "internal.h"

/* A value of wait_left: the requester does not sleep, and no worker need wake it. */
#define PSC_NOT_WAITING (-1)

struct tl_psc {
	uint32_t entries;		/* 0 in the child of a fork */
	uint32_t mask;
	uint32_t spin_us;
	enum tl_backend backend;	/* the choice of tl_psc_create() */
	int fd;
	struct tl_request *requests;
	uint32_t *submit;		/* slot of the k-th request, at k & submit_mask */
	uint32_t submit_mask;

	/* Only the requester uses these. */
	uint32_t *free_slots;		/* a stack of slots */
	uint32_t *index_of;		/* slot -> k of its latest request */
	uint32_t free_n;
	uint32_t added;			/* k of the next request */
	uint32_t handover;		/* the module got the requests before this k */
	uint32_t *places;		/* submit[] after the handover: 2 * entries */
	uint32_t workers_out_seen;	/* workers_out when the requester last read it */
	unsigned int started;		/* threads of tl_psc_start(), in header->heap */

	/* The requester and the workers share these. */
	uint32_t notified __attribute__((aligned(64)));	/* requests submitted, free-running */
	uint32_t bell;			/* futex: changes at notify and destroy */
	uint32_t exiting;
	uint32_t module_stopped;	/* bits of psc/handover.c: nobody may enter the module */
	uint32_t workers_out;		/* workers that have left the module for good */
	uint32_t serving;		/* user-space workers may claim requests */
	uint32_t taken __attribute__((aligned(64)));	/* requests claimed, free-running */
	uint32_t sleepers;		/* workers that sleep on the bell, or are about to */
	uint32_t finished;		/* futex: changes when a request is done and one waits */
	int32_t wait_left;		/* the requester waits for so few unfinished requests */
	uint32_t unfinished;		/* requests that are notified and not done */
	uint32_t inside;		/* futex: threads in tl_psc_enter() */
	struct tl_stats counts;		/* of user-space workers; relaxed atomics */
};

/* Serves requests in user space. Returns the number of served requests, or -EINTR. */
long tl_psc_worker_enter(struct tl_psc *psc);
/* Submits all requests that were added. */
void tl_psc_worker_notify(struct tl_psc *psc);
/* Sleeps until at most `left` requests are unfinished. Returns how many are, or -EINTR. */
int tl_psc_worker_wait(struct tl_psc *psc, unsigned int left);
/* From now on the module begins no request. Any thread may call it. */
void tl_psc_stop_module(struct tl_psc *psc);
/*
 * Hands the requests that the module has not begun, or has given back since, to user-space workers.
 * Only the requester calls it. It is cheap when there is no such request.
 */
void tl_psc_hand_over(struct tl_psc *psc);
/* Wakes the requester and all workers, so that they look at the state again. */
void tl_psc_wake_all(struct tl_psc *psc);

#endif /* TRAPLESS_LIB_PSC_STATE_H */
