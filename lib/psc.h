/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * psc.h - the state of a ring of parallel calls, shared by psc.c (the five operations),
 * psc_plain.c (workers in user space) and psc_leave.c (from the module to those).
 *
 * Who writes what: the requester alone writes requests, submit[], added, notified, the free slots;
 * workers alone write taken, results and states from TL_RUNNING on. What both touch is atomic.
 */
#ifndef TRAPLESS_LIB_PSC_H
#define TRAPLESS_LIB_PSC_H

#include "internal.h"

/* The requester sleeps for nothing: no worker need wake it. */
#define PSC_NOT_WAITING (-1)

struct tl_psc {
	uint32_t entries;		/* 0 in the child of a fork */
	uint32_t mask;
	uint32_t spin_us;
	enum tl_backend backend;	/* as chosen at the start */
	int fd;
	struct tl_request *requests;
	uint32_t *submit;		/* slot of the k-th request, at k & submit_mask */
	uint32_t submit_mask;

	/* The requester's own. */
	uint32_t *free_slots;		/* a stack of them */
	uint32_t *index_of;		/* slot -> k of its latest request */
	uint32_t free_n;
	uint32_t added;			/* k of the next request */
	uint32_t handover;		/* requests before this k were the module's */
	uint32_t *places;		/* submit[] once the module is left: 2 * entries */
	uint32_t home_seen;		/* came_home at the last look */
	unsigned int started;		/* threads of tl_psc_start(), in kept->heap */

	/* Shared with workers. */
	uint32_t notified __attribute__((aligned(64)));	/* requests handed out, free-running */
	uint32_t bell;			/* futex: rings at notify and exit */
	uint32_t exiting;
	uint32_t leave_module;		/* no door of the module is to be used any more */
	uint32_t came_home;		/* workers that have left the module for good */
	uint32_t serving;		/* user-space workers may claim: no module, or taken over */
	uint32_t taken __attribute__((aligned(64)));	/* requests claimed, free-running */
	uint32_t sleepers;		/* workers that sleep on the bell, or are about to */
	uint32_t finished;		/* futex: a request is done and the requester waits */
	int32_t wait_left;		/* wake the requester at this many unfinished */
	uint32_t unfinished;		/* notified and not done */
	uint32_t inside;		/* futex: threads in tl_psc_enter() */
	struct tl_stats counts;		/* of user-space workers; relaxed atomics */
};

/* Serve in user space. Returns the number served, or -EINTR. */
long tl_psc_plain_enter(struct tl_psc *psc);
/* Hand out all that was added. */
void tl_psc_plain_notify(struct tl_psc *psc);
/* Sleep until at most `left` are unfinished. Returns how many are, or -EINTR. */
int tl_psc_plain_wait(struct tl_psc *psc, unsigned int left);
/* Any thread: from now on the module begins no request. */
void tl_psc_leave(struct tl_psc *psc);
/*
 * The requester: hands what the module has not begun, or has given back since, to user-space
 * workers. Cheap when there is nothing new.
 */
void tl_psc_take_over(struct tl_psc *psc);
/* A worker has come home from the module, or everybody shall look at `exiting`. */
void tl_psc_ring(struct tl_psc *psc);

#endif /* TRAPLESS_LIB_PSC_H */
