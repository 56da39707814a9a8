/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Liburing as all experiments use it: rings with and without a polling thread. It owns how long
 * that thread polls and how its answers are awaited; requests are the experiments'.
 */
#ifndef EVAL_URING_H
#define EVAL_URING_H

#include <stdbool.h>
#include <liburing.h>

#include "requester_wait.h"

#define URING_NOT_POLLED (-1)
#define URING_IDLE_MS 20	/* a polling thread without work looks for so long, then sleeps */

/* polled_cpu: where a polling thread runs, or URING_NOT_POLLED. */
static inline int uring_open(struct io_uring *ring, unsigned int entries, int polled_cpu)
{
	struct io_uring_params params = { 0 };

	if (polled_cpu != URING_NOT_POLLED) {
		params.flags = IORING_SETUP_SQPOLL | IORING_SETUP_SQ_AFF;
		params.sq_thread_cpu = (unsigned int)polled_cpu;
		params.sq_thread_idle = URING_IDLE_MS;
	}
	return io_uring_queue_init_params(entries, ring, &params);
}

/* A polling thread may lag behind with giving entries back. */
static inline __attribute__((always_inline)) struct io_uring_sqe *uring_next(struct io_uring *ring)
{
	struct io_uring_sqe *sqe;

	while (!(sqe = io_uring_get_sqe(ring)))
		io_uring_sqring_wait(ring);
	return sqe;
}

/* Looks for n completions without a crossing. False: it takes too long, sleep. */
static inline __attribute__((always_inline)) bool uring_look(struct io_uring *ring, unsigned int n)
{
	for (unsigned int look = 0; look < WAITING_LOOKS_MAX; look++) {
		if (io_uring_cq_ready(ring) >= n)
			return true;
		waiting_pause(look);
	}
	return false;
}

#endif /* EVAL_URING_H */
