/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * The state of a ring of parallel calls. psc.c (the five operations), psc/completion.c (results),
 * psc/worker.c (workers in user space) and psc/handover.c (the handover from the module to those
 * workers) share it.
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

/* The last argument of a request for a program that the library has checked. */
#define PSC_OWN_PROGRAM 1u

/* A queue of completions: <linux/trapless.h> says how. The module has one, the library another. */
struct psc_completions {
	uint32_t *slots;		/* NULL: there is none */
	uint32_t taken;			/* completions that the requester has taken */
};

/* Which user-space workers are awake: psc/pool.c says how that is decided. */
struct psc_pool {
	uint64_t running;		/* generation << 32 | its workers that take requests */
	uint32_t watch;
	uint32_t eager;			/* quick calls until requests wake one worker only */
	uint32_t blocked_looks;		/* of watchers, in a row; only a watcher uses it */
	uint32_t cpus;			/* that the process may use */
	uint32_t silent;		/* completions since the last signal */
};

/* A worker's turn, from its first request until it finds none. */
struct psc_turn {
	bool counted;			/* in pool.running, if the generation is still the same */
	uint64_t generation;
	uint64_t begin_ns;		/* of the call, or 0 unless the ring is eager */
};

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
	uint32_t canceled_n;		/* canceled slots, at the end of free_slots */
	uint32_t added;			/* k of the next request */
	uint32_t handover;		/* the module got the requests before this k */
	uint32_t *places;		/* submit[] after the handover: 2 * entries */
	uint32_t workers_out_seen;	/* workers_out when the requester last read it */
	unsigned int started;		/* threads of tl_psc_start(), in header->heap */
	uint64_t *user_data;		/* slot -> what its completion shows */
	struct psc_completions of_module, own;
	uint32_t signals;		/* that the pipe got or will get; free-running */
	uint32_t signals_taken;

	/* The requester and the workers share these. */
	uint32_t notified __attribute__((aligned(64)));	/* requests submitted, free-running */
	uint32_t bell;			/* futex: changes at notify and destroy */
	uint32_t exiting;
	uint32_t module_stopped;	/* bits of psc/handover.c: nobody may enter the module */
	uint32_t workers_out;		/* workers that have left the module for good */
	uint32_t serving;		/* user-space workers may claim requests */
	uint32_t taken __attribute__((aligned(64)));	/* requests claimed, free-running */
	struct psc_pool pool;
	uint32_t sleepers;		/* workers that sleep on the bell, or are about to */
	uint32_t finished;		/* futex: changes when a request is done and one waits */
	int32_t wait_left;		/* the requester waits for so few unfinished requests */
	uint32_t unfinished;		/* requests that are notified and not done */
	uint32_t inside;		/* futex: threads in tl_psc_enter() */
	uint32_t completed;		/* completions that user-space workers have queued */
	uint32_t *armed;		/* tl_completions.armed, or own_armed without the module */
	uint32_t own_armed;
	int loop_fd;			/* of tl_psc_fd(), or -1 */
	struct tl_stats counts;		/* of user-space workers; relaxed atomics */
};

/* Does the module serve the ring? Once it does not, it never does again. */
static inline bool tl_psc_in_module(const struct tl_psc *psc)
{
	return psc->backend == TL_BACKEND_MODULE &&
	       !__atomic_load_n(&psc->module_stopped, __ATOMIC_ACQUIRE);
}

/* Returns whether user-space workers serve the ring; completes a handover where one is due. */
bool tl_psc_in_user_space(struct tl_psc *psc);
/* Frees the slots of canceled requests to which a worker has come. Only the requester calls it. */
void tl_psc_free_canceled(struct tl_psc *psc);
/* How many canceled requests no worker has come to yet. Only the requester calls it. */
uint32_t tl_psc_canceled_ahead(struct tl_psc *psc);
/* Serves requests in user space. Returns the number of served requests, or -EINTR. */
long tl_psc_worker_enter(struct tl_psc *psc);
/* Submits all requests that were added. */
void tl_psc_worker_notify(struct tl_psc *psc);
/* psc/pool.c: how many workers are awake. */
void tl_psc_pool_setup(struct tl_psc *psc);
/* Wakes workers for n requests that have just been submitted. */
void tl_psc_pool_notify(struct tl_psc *psc, uint32_t n);
/* The calling worker has claimed a request and is about to make it; has made it; found no other. */
void tl_psc_pool_begin(struct tl_psc *psc, struct psc_turn *turn);
void tl_psc_pool_end(struct tl_psc *psc, const struct psc_turn *turn);
/* Tells the requester of a completion, now or with later ones. */
void tl_psc_pool_signal(struct tl_psc *psc);
void tl_psc_pool_leave(struct tl_psc *psc, struct psc_turn *turn);
/* A worker asks after it has counted itself among the sleepers. If not, it is wanted as watcher. */
bool tl_psc_pool_may_sleep(const struct tl_psc *psc);
/* The worker leaves, though it may have been woken to watch. */
void tl_psc_pool_quit(struct tl_psc *psc);
/* Watches if a watcher is wanted. Returns 0 when the worker may claim requests, or -EINTR. */
int tl_psc_pool_watch(struct tl_psc *psc);
/*
 * Sleeps until at most `left` requests are unfinished, those among them that were canceled. Returns
 * how many are, -EINTR, or -ETIME at the time `end_ns` of the monotonic clock.
 */
int tl_psc_worker_wait(struct tl_psc *psc, unsigned int left, uint64_t end_ns);
/* Makes the descriptor of tl_psc_fd() readable, unless it is. Any thread may call it. */
void tl_psc_signal(struct tl_psc *psc);
uint64_t tl_psc_now_ns(void);
/* From now on the module begins no request. Any thread may call it. */
void tl_psc_stop_module(struct tl_psc *psc);
/*
 * Hands the requests that the module has not begun, or has given back since, to user-space workers.
 * Only the requester calls it. It is cheap when there is no such request.
 */
void tl_psc_hand_over(struct tl_psc *psc);
/* Makes all workers return after their current calls. It does not wait for them. */
void tl_psc_exit(struct tl_psc *psc);
/* Wakes the requester and all workers, so that they look at the state again. */
void tl_psc_wake_all(struct tl_psc *psc);

#endif /* TRAPLESS_LIB_PSC_STATE_H */
