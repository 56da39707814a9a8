/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The ways of making N system calls that batch-size sets side by side: opening and closing them,
 * and one measured loop for each pair of mechanism and subject. It neither measures nor prints.
 */
#ifndef EVAL_MECHANISMS_H
#define EVAL_MECHANISMS_H

#include <stdbool.h>
#include <stdint.h>
#include <liburing.h>
#include <trapless.h>

#include "measure.h"
#include "raw_ring.h"
#include "batched_calls.h"

enum mechanism {
	PLAIN,			/* one fast trap a call */
	PLAIN_INT,		/* one INT trap a call */
	BATCH,			/* libtrapless, module: one fast trap a batch */
	BATCH_INT,		/* the same ring, one INT trap a batch */
	BATCH_PLAIN,		/* libtrapless without the module */
	URING,			/* liburing, one submit-and-wait a batch */
	URING_SQPOLL,		/* liburing, a kernel thread polls: no crossing while it is awake */
	MECHANISMS
};

struct bench {
	struct fixture *fixture;
	struct tl_batch *batch, *batch_plain;
	struct raw_ring raw;	/* to knock by INT */
	struct io_uring uring, sqpoll;
	bool open[MECHANISMS];
	char reason[MECHANISMS][MEASURE_REASON_CHARS];	/* why a mechanism is not open */
};

/* The input and the results of one measured loop. */
struct run {
	struct bench *bench;
	unsigned int n, calls;	/* calls is a multiple of n */
	unsigned long bad;	/* not 0: a result differed from what the subject must return */
};

typedef void (*runner)(void *run);

const char *mechanism_name(enum mechanism mechanism);
/* Opens those whose names are in the list; one that cannot be had keeps its reason. */
void bench_open(struct bench *bench, const char *wanted);
void bench_close(struct bench *bench);
/* NULL where the mechanism lacks the call. */
runner bench_runner(enum mechanism mechanism, enum subject subject);
enum stat_form mechanism_stat_form(enum mechanism mechanism);
/* Kernel-side counts; false for mechanisms that have none. */
bool bench_stats(struct bench *bench, enum mechanism mechanism, struct tl_stats *stats);

#endif /* EVAL_MECHANISMS_H */
