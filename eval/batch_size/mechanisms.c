// SPDX-License-Identifier: GPL-2.0-only
/*
 * See mechanisms.h. Each loop makes `calls` calls in batches of n and compares every result with
 * what the call must return; that comparison is part of the figure, because a program looks at its
 * results, too.
 */
#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>

#include "../../stat/estimate/int80.h"
#include "measure.h"
#include "mechanisms.h"
#include "workload_uring.h"

#define RING_ENTRIES SUBJECT_BATCH_MAX
#define POLLING_CPU 1		/* of io_uring's thread; the requester is on CPU 0 */

#define INLINED static inline __attribute__((always_inline))

static const char *const names[MECHANISMS] = {
	[PLAIN] = "plain", [PLAIN_INT] = "plain-int", [BATCH] = "batch", [BATCH_INT] = "batch-int",
	[BATCH_PLAIN] = "batch-plain", [URING] = "io_uring", [URING_SQPOLL] = "io_uring-sqpoll",
};

const char *mechanism_name(enum mechanism mechanism)
{
	return names[mechanism];
}

enum stat_form mechanism_stat_form(enum mechanism mechanism)
{
	if (mechanism == PLAIN_INT)
		return STAT_NARROW;
	if (mechanism == URING || mechanism == URING_SQPOLL)
		return STAT_RING;
	return STAT_PLAIN;
}

/* ---- The measured loops ------------------------------------------------------------------- */

INLINED void run_plain(struct run *run, enum subject subject, bool by_int)
{
	struct fixture *fixture = run->bench->fixture;
	long expected = subject_result(subject, fixture);
	unsigned long bad = 0;

	for (unsigned int j = 0; j < run->calls; j += run->n)
		for (unsigned int i = 0; i < run->n; i++)
			bad |= (unsigned long)((by_int ? subject_int(subject, fixture, j + i, i) :
						subject_fast(subject, fixture, j + i, i)) ^
					       expected);
	run->bad |= bad;
}

enum way { BY_LIBRARY, BY_INT };

INLINED int knock(struct run *run, struct tl_batch *batch, enum way way)
{
	unsigned int n = run->n;

	if (way == BY_LIBRARY)
		return tl_batch_flush(batch);
	return raw_ring_enter(&run->bench->raw, n, true);
}

INLINED int add_call(struct tl_batch *batch, struct call call)
{
	return tl_batch_add(batch, call.nr, call.a0, call.a1, call.a2, call.a3, 0, 0);
}

INLINED void run_batch(struct run *run, enum subject subject, struct tl_batch *batch,
		       enum way way)
{
	struct fixture *fixture = run->bench->fixture;
	int64_t expected = subject_result(subject, fixture);
	unsigned long bad = 0;

	for (unsigned int j = 0; j < run->calls; j += run->n) {
		int slot = add_call(batch, subject_call(subject, fixture, j, 0));
		unsigned int first = (unsigned int)slot;

		for (unsigned int i = 1; i < run->n; i++)
			add_call(batch, subject_call(subject, fixture, j + i, i));
		bad |= (unsigned long)knock(run, batch, way) ^ run->n;
		for (unsigned int i = 0; i < run->n; i++)
			bad |= (unsigned long)(tl_batch_result(batch, first + i) ^ expected);
	}
	run->bad |= bad;
}

/* SQPOLL: makes no crossing, unless the answer takes too long. */
INLINED int await_polled(struct io_uring *ring, unsigned int n)
{
	return uring_look(ring, n) ? 0 : io_uring_submit_and_wait(ring, n);
}

INLINED void run_uring(struct run *run, enum subject subject, struct io_uring *ring, bool polled)
{
	struct fixture *fixture = run->bench->fixture;
	long expected = subject_sqe_result(subject, fixture);
	unsigned long bad = 0;

	for (unsigned int j = 0; j < run->calls; j += run->n) {
		struct io_uring_cqe *cqe;
		unsigned int head, seen = 0;

		for (unsigned int i = 0; i < run->n; i++)
			subject_sqe(subject, fixture, uring_next(ring), j + i, i);
		if (polled) {
			io_uring_submit(ring);
			bad |= await_polled(ring, run->n) < 0;
		} else {
			bad |= (unsigned long)io_uring_submit_and_wait(ring, run->n) ^ run->n;
		}
		io_uring_for_each_cqe(ring, head, cqe) {
			bad |= (unsigned long)(cqe->res ^ expected);
			seen++;
		}
		io_uring_cq_advance(ring, seen);
		bad |= seen ^ run->n;
	}
	run->bad |= bad;
}

#define RUNNERS(subject) \
static void plain_##subject(void *arg) { run_plain(arg, subject, false); } \
static void plain_int_##subject(void *arg) { run_plain(arg, subject, true); } \
static void batch_##subject(void *arg) \
{ \
	struct run *run = arg; \
	run_batch(run, subject, run->bench->batch, BY_LIBRARY); \
} \
static void batch_int_##subject(void *arg) \
{ \
	struct run *run = arg; \
	run_batch(run, subject, &run->bench->raw.batch, BY_INT); \
} \
static void batch_plain_##subject(void *arg) \
{ \
	struct run *run = arg; \
	run_batch(run, subject, run->bench->batch_plain, BY_LIBRARY); \
} \
static void uring_##subject(void *arg) \
{ \
	struct run *run = arg; \
	run_uring(run, subject, &run->bench->uring, false); \
} \
static void sqpoll_##subject(void *arg) \
{ \
	struct run *run = arg; \
	run_uring(run, subject, &run->bench->sqpoll, true); \
}

static void plain_NOSYS(void *arg) { run_plain(arg, NOSYS, false); }
static void plain_int_NOSYS(void *arg) { run_plain(arg, NOSYS, true); }

RUNNERS(GETPID)
RUNNERS(GETPPID)
RUNNERS(READ1)
RUNNERS(READ4K)
RUNNERS(READ1_DISK)
RUNNERS(WRITE1)
RUNNERS(STAT)

#define ROW(name) \
	[GETPID] = name##_GETPID, [GETPPID] = name##_GETPPID, [READ1] = name##_READ1, \
	[READ4K] = name##_READ4K, [READ1_DISK] = name##_READ1_DISK, \
	[WRITE1] = name##_WRITE1, [STAT] = name##_STAT

static const runner runners[MECHANISMS][SUBJECTS] = {
	[PLAIN] = { [NOSYS] = plain_NOSYS, ROW(plain) },
	[PLAIN_INT] = { [NOSYS] = plain_int_NOSYS, ROW(plain_int) },
	[BATCH] = { ROW(batch) },
	[BATCH_INT] = { ROW(batch_int) },
	[BATCH_PLAIN] = { ROW(batch_plain) },
	[URING] = { ROW(uring) },
	[URING_SQPOLL] = { ROW(sqpoll) },
};

runner bench_runner(enum mechanism mechanism, enum subject subject)
{
	return runners[mechanism][subject];
}

/* ---- Opening and closing -------------------------------------------------------------------- */

static int open_one(struct bench *bench, enum mechanism mechanism)
{
	switch (mechanism) {
	case PLAIN: return 0;
	case PLAIN_INT: return int80_works() ? 0 : -ENOSYS;
	case BATCH: return tl_batch_create(&bench->batch, RING_ENTRIES, TL_MODULE);
	case BATCH_INT: return int80_works() ? raw_ring_open(&bench->raw, RING_ENTRIES) : -ENOSYS;
	case BATCH_PLAIN: return tl_batch_create(&bench->batch_plain, RING_ENTRIES, TL_PLAIN);
	case URING: return uring_open(&bench->uring, RING_ENTRIES, URING_NOT_POLLED);
	default: return uring_open(&bench->sqpoll, RING_ENTRIES, POLLING_CPU);
	}
}

void bench_open(struct bench *bench, const char *wanted)
{
	for (unsigned int m = 0; m < MECHANISMS; m++) {
		int error = measure_list_has(wanted, names[m]) ?
				    open_one(bench, (enum mechanism)m) : MEASURE_NOT_ASKED;

		bench->open[m] = measure_opened(bench->reason[m], error);
	}
}

void bench_close(struct bench *bench)
{
	if (bench->open[URING_SQPOLL])
		io_uring_queue_exit(&bench->sqpoll);
	if (bench->open[URING])
		io_uring_queue_exit(&bench->uring);
	if (bench->open[BATCH_PLAIN])
		tl_batch_destroy(bench->batch_plain);
	if (bench->open[BATCH_INT])
		raw_ring_close(&bench->raw);
	if (bench->open[BATCH])
		tl_batch_destroy(bench->batch);
}

bool bench_stats(struct bench *bench, enum mechanism mechanism, struct tl_stats *stats)
{
	int error;

	*stats = (struct tl_stats){ .size = sizeof(*stats) };
	switch (mechanism) {
	case BATCH:
		error = tl_batch_get_stats(bench->batch, stats);
		break;
	case BATCH_PLAIN:
		error = tl_batch_get_stats(bench->batch_plain, stats);
		break;
	case BATCH_INT:
		error = ioctl(bench->raw.fd, TL_IOC_STATS, stats) ? -errno : 0;
		break;
	default:
		return false;
	}
	if (error)
		measure_fail("statistics of %s: %s", names[mechanism], strerror(-error));
	return true;
}
