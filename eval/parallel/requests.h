/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The ways of getting 127 system calls done that experiment parallel sets side by side, as in Fig.
 * 3 of the paper: K of them a notify, until all results are in. It neither measures nor prints.
 */
#ifndef EVAL_REQUESTS_H
#define EVAL_REQUESTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <liburing.h>
#include <trapless.h>

#include "crew.h"
#include "measure.h"

#define REQUESTS 127u		/* as in Fig. 3 */
#define REQUESTS_RING 128u	/* entries of each ring: the next power of two */

enum subject { GETTID, READ1, SUBJECTS };

enum mechanism {
	PLAIN,		/* one trap a call, one after the other */
	BATCH,		/* wrapped calls, K a batch */
	PSC,		/* parallel calls, module: K a notify */
	PSC_PLAIN,	/* parallel calls of the library without the module: threads */
	URING,		/* liburing, K a submit */
	URING_SQPOLL,	/* liburing, a kernel thread polls */
	MECHANISMS
};

struct desk {
	unsigned int workers;
	int page_fd;
	pid_t tid;
	uint8_t bytes[REQUESTS];	/* READ1 */
	struct crew crew, crew_plain;
	struct tl_batch *batch;
	struct io_uring uring, sqpoll;
	bool open[MECHANISMS];
	char reason[MECHANISMS][MEASURE_REASON_CHARS];
};

struct desk_config {
	const char *wanted, *directory;
	unsigned int workers, spin_us;
	int worker_cpu;		/* pin workers and SQPOLL's thread there; -1: do not */
	bool idle_workers;	/* SCHED_IDLE: workers never preempt the requester */
	bool only_workers;	/* leave out what the number of workers does not change */
};

/* One measured run and what it found. */
struct run {
	struct desk *desk;
	unsigned int k;		/* requests a notify */
	unsigned int crew;	/* workers of this desk, also where this run has none of its own */
	bool may_spin;		/* wait by looking at results before sleeping */
	uint64_t began, submitted;	/* counter: before the first request, after the last */
	unsigned int crossings;	/* entries into the kernel, where the run itself makes them */
	const char *wrong;	/* what went wrong, or NULL */
	long wrong_value;	/* ... and what it was instead */
};

typedef void (*runner)(void *run);

const char *subject_name(enum subject subject);
const char *mechanism_name(enum mechanism mechanism);
runner desk_runner(enum mechanism mechanism, enum subject subject);

void desk_open(struct desk *desk, const struct desk_config *config);
void desk_close(struct desk *desk);
/* Kernel-side counts; false for mechanisms that have none. */
bool desk_stats(struct desk *desk, enum mechanism mechanism, struct tl_stats *stats);

void desk_clear(struct desk *desk);
/* Ends the program unless every byte was read. */
void desk_check(const struct desk *desk, enum mechanism mechanism, unsigned int k);

#endif /* EVAL_REQUESTS_H */
