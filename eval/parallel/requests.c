// SPDX-License-Identifier: GPL-2.0-only
/*
 * See requests.h. Every result is compared inside the measured loop: gettid must answer with the
 * requester's own thread or with one of the workers, depending on which threads may serve.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "measure.h"
#include "requests.h"
#include "traps.h"
#include "workload_uring.h"
#include "requester_wait.h"

#define PAGE 4096u

#define INLINED static inline __attribute__((always_inline))

static const char *const names[MECHANISMS] = {
	[PLAIN] = "plain", [BATCH] = "batch", [PSC] = "psc", [PSC_PLAIN] = "psc-plain",
	[URING] = "io_uring", [URING_SQPOLL] = "io_uring-sqpoll",
};

const char *mechanism_name(enum mechanism mechanism)
{
	return names[mechanism];
}

const char *subject_name(enum subject subject)
{
	return subject == GETTID ? "gettid" : "read1_disk";
}

static uint8_t pattern(unsigned int offset)
{
	return (uint8_t)(1 + offset * 37u % 255u);
}

static uint64_t read_offset(unsigned int j)
{
	return j * 31u;
}

/* ---- The measured loops ------------------------------------------------------------------- */

INLINED void note_wrong(struct run *run, bool wrong, const char *what, long value)
{
	if (__builtin_expect(wrong, 0) && !run->wrong) {
		run->wrong = what;
		run->wrong_value = value;
	}
}

INLINED uint32_t call_nr(enum subject subject)
{
	return subject == GETTID ? SYS_gettid : SYS_pread64;
}

/* The arguments of the j-th request, as tl_batch_add() and tl_psc_add() take them. */
#define CALL_ARGUMENTS(subject, desk, j) \
	(subject) == GETTID ? 0 : (uint64_t)(desk)->page_fd, \
	(subject) == GETTID ? 0 : (uintptr_t)&(desk)->bytes[j], \
	(subject) == GETTID ? 0 : 1, (subject) == GETTID ? 0 : read_offset(j), 0, 0

INLINED void run_plain(struct run *run, enum subject subject)
{
	struct desk *desk = run->desk;
	long expected = subject == GETTID ? desk->tid : 1, wrong = 0;

	run->began = measure_counter();
	for (unsigned int j = 0; j < REQUESTS; j++) {
		if (subject == GETTID)
			wrong |= trap_fast0(SYS_gettid) ^ expected;
		else
			wrong |= trap_fast4(SYS_pread64, (uint64_t)desk->page_fd,
					    (uintptr_t)&desk->bytes[j], 1, read_offset(j)) ^
				 expected;
	}
	run->submitted = measure_counter();
	run->crossings = REQUESTS;
	note_wrong(run, wrong != 0, "a result or a count of results", (long)wrong);
}

INLINED void run_batch(struct run *run, enum subject subject)
{
	struct desk *desk = run->desk;
	struct tl_batch *batch = desk->batch;
	int64_t expected = subject == GETTID ? desk->tid : 1, wrong = 0;

	run->began = measure_counter();
	for (unsigned int j = 0; j < REQUESTS; ) {
		unsigned int end = j + run->k;
		int count, first;

		if (end > REQUESTS)
			end = REQUESTS;
		count = (int)(end - j);
		first = tl_batch_add(batch, call_nr(subject), CALL_ARGUMENTS(subject, desk, j));
		for (j++; j < end; j++)
			tl_batch_add(batch, call_nr(subject), CALL_ARGUMENTS(subject, desk, j));
		wrong |= tl_batch_flush(batch) ^ count;
		for (int i = 0; i < count; i++)
			wrong |= tl_batch_result(batch, (unsigned int)(first + i)) ^ expected;
	}
	run->submitted = measure_counter();
	note_wrong(run, wrong != 0, "a result or a count of results", (long)wrong);
}

INLINED bool is_worker(struct crew *crew, int64_t tid)
{
	for (unsigned int w = 0; w < crew->workers; w++) {
		if (crew->tids[w] == tid) {
			crew->served[w]++;
			return true;
		}
	}
	return false;
}

/* Look for a result; after long enough, or where looking keeps the CPU from a worker, sleep. */
INLINED int64_t await_result(struct run *run, struct tl_psc *psc, unsigned int slot)
{
	int64_t result;

	for (unsigned int look = 0; run->may_spin && look < WAITING_LOOKS_MAX; look++) {
		if (tl_psc_result(psc, slot, &result))
			return result;
		waiting_pause(look);
	}
	while (!tl_psc_result(psc, slot, &result)) {
		int error = tl_psc_wait(psc, 0);

		/* Other parts of the kernel (a ring of io_uring that goes away) interrupt, too. */
		if (error < 0 && error != -EINTR) {
			note_wrong(run, true, "waiting", error);
			return 0;
		}
	}
	return result;
}

INLINED void run_psc(struct run *run, struct crew *crew, enum subject subject)
{
	struct desk *desk = run->desk;
	struct tl_psc *psc = crew->psc;
	int slots[REQUESTS], error;

	run->began = measure_counter();
	for (unsigned int j = 0; j < REQUESTS; ) {
		unsigned int end = j + run->k;

		if (end > REQUESTS)
			end = REQUESTS;
		for (; j < end; j++)
			slots[j] = tl_psc_add(psc, call_nr(subject),
					      CALL_ARGUMENTS(subject, desk, j));
		error = tl_psc_notify(psc);
		note_wrong(run, error < 0, "a notify", error);
	}
	run->submitted = measure_counter();
	for (unsigned int j = 0; j < REQUESTS; j++) {
		int64_t result;

		if (slots[j] < 0) {
			note_wrong(run, true, "adding a request", slots[j]);
			continue;
		}
		result = await_result(run, psc, (unsigned int)slots[j]);
		note_wrong(run, subject == GETTID ? !is_worker(crew, result) : result != 1,
			   subject == GETTID ? "a thread that is no worker" : "a result",
			   (long)result);
	}
}

INLINED void prepare_sqe(struct io_uring_sqe *sqe, struct desk *desk, enum subject subject,
		     unsigned int j)
{
	if (subject == GETTID)
		io_uring_prep_nop(sqe);
	else
		io_uring_prep_read(sqe, desk->page_fd, &desk->bytes[j], 1, read_offset(j));
}

INLINED void run_uring(struct run *run, struct io_uring *ring, enum subject subject, bool polled)
{
	int expected = subject == GETTID ? 0 : 1, error;
	struct io_uring_cqe *cqe;
	unsigned int head, seen = 0;

	run->began = measure_counter();
	for (unsigned int j = 0; j < REQUESTS; ) {
		unsigned int end = j + run->k;

		if (end > REQUESTS)
			end = REQUESTS;
		for (; j < end; j++)
			prepare_sqe(uring_next(ring), run->desk, subject, j);
		error = io_uring_submit(ring);
		note_wrong(run, error < 0, "submitting", error);
		run->crossings += !polled; /* liburing does not tell when it wakes the thread */
	}
	run->submitted = measure_counter();
	if (polled)
		uring_look(ring, REQUESTS);
	if (io_uring_cq_ready(ring) < REQUESTS) {
		error = io_uring_submit_and_wait(ring, REQUESTS);
		note_wrong(run, error < 0, "waiting", error);
		run->crossings++;
	}
	io_uring_for_each_cqe(ring, head, cqe) {
		note_wrong(run, cqe->res != expected, "a result", cqe->res);
		seen++;
	}
	io_uring_cq_advance(ring, seen);
	note_wrong(run, seen != REQUESTS, "the number of results", seen);
}

#define RUNNERS(subject) \
static void plain_##subject(void *arg) { run_plain(arg, subject); } \
static void batch_##subject(void *arg) { run_batch(arg, subject); } \
static void psc_##subject(void *arg) \
{ \
	struct run *run = arg; \
	run_psc(run, &run->desk->crew, subject); \
} \
static void psc_plain_##subject(void *arg) \
{ \
	struct run *run = arg; \
	run_psc(run, &run->desk->crew_plain, subject); \
} \
static void uring_##subject(void *arg) \
{ \
	struct run *run = arg; \
	run_uring(run, &run->desk->uring, subject, false); \
} \
static void sqpoll_##subject(void *arg) \
{ \
	struct run *run = arg; \
	run_uring(run, &run->desk->sqpoll, subject, true); \
}

RUNNERS(GETTID)
RUNNERS(READ1)

#define ROW(name) { name##_GETTID, name##_READ1 }

static const runner runners[MECHANISMS][SUBJECTS] = {
	[PLAIN] = ROW(plain), [BATCH] = ROW(batch), [PSC] = ROW(psc), [PSC_PLAIN] = ROW(psc_plain),
	[URING] = ROW(uring), [URING_SQPOLL] = ROW(sqpoll),
};

runner desk_runner(enum mechanism mechanism, enum subject subject)
{
	return runners[mechanism][subject];
}

/* ---- Opening and closing -------------------------------------------------------------------- */

static void create_page(struct desk *desk, const char *directory)
{
	uint8_t page[PAGE];
	char path[128];

	snprintf(path, sizeof(path), "%s/parallel-page", directory);
	desk->page_fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	for (unsigned int i = 0; i < PAGE; i++)
		page[i] = pattern(i);
	if (desk->page_fd < 0 || write(desk->page_fd, page, PAGE) != PAGE)
		measure_fail("%s: %s", path, strerror(errno));
}

static int open_one(struct desk *desk, const struct desk_config *config, enum mechanism mechanism)
{
	switch (mechanism) {
	case PLAIN:
		return 0;
	case BATCH:
		return tl_batch_create(&desk->batch, REQUESTS_RING, TL_MODULE);
	case PSC:
		crew_open(&desk->crew, REQUESTS_RING, config->workers, config->spin_us, TL_MODULE);
		crew_place(&desk->crew, config->worker_cpu, config->idle_workers);
		return 0;
	case PSC_PLAIN:
		crew_open(&desk->crew_plain, REQUESTS_RING, config->workers, config->spin_us,
			  TL_PLAIN);
		crew_place(&desk->crew_plain, config->worker_cpu, config->idle_workers);
		return 0;
	case URING:
		return uring_open(&desk->uring, REQUESTS_RING, URING_NOT_POLLED);
	default:
		return uring_open(&desk->sqpoll, REQUESTS_RING, config->worker_cpu);
	}
}

static bool is_wanted(const struct desk_config *config, enum mechanism mechanism)
{
	if (config->only_workers && mechanism != PLAIN && mechanism != PSC &&
	    mechanism != PSC_PLAIN)
		return false;
	return measure_list_has(config->wanted, names[mechanism]);
}

void desk_open(struct desk *desk, const struct desk_config *config)
{
	create_page(desk, config->directory);
	desk->tid = gettid();
	desk->workers = config->workers;
	for (unsigned int m = 0; m < MECHANISMS; m++) {
		int error = is_wanted(config, (enum mechanism)m) ?
				    open_one(desk, config, (enum mechanism)m) : MEASURE_NOT_ASKED;

		desk->open[m] = measure_opened(desk->reason[m], error);
	}
}

void desk_close(struct desk *desk)
{
	if (desk->open[URING_SQPOLL])
		io_uring_queue_exit(&desk->sqpoll);
	if (desk->open[URING])
		io_uring_queue_exit(&desk->uring);
	if (desk->open[PSC_PLAIN])
		crew_close(&desk->crew_plain);
	if (desk->open[PSC])
		crew_close(&desk->crew);
	if (desk->open[BATCH])
		tl_batch_destroy(desk->batch);
	close(desk->page_fd);
}

bool desk_stats(struct desk *desk, enum mechanism mechanism, struct tl_stats *stats)
{
	int error;

	*stats = (struct tl_stats){ .size = sizeof(*stats) };
	switch (mechanism) {
	case BATCH: error = tl_batch_get_stats(desk->batch, stats); break;
	case PSC: error = tl_psc_get_stats(desk->crew.psc, stats); break;
	case PSC_PLAIN: error = tl_psc_get_stats(desk->crew_plain.psc, stats); break;
	default: return false;
	}
	if (error)
		measure_fail("statistics of %s: %s", names[mechanism], strerror(-error));
	return true;
}

void desk_clear(struct desk *desk)
{
	memset(desk->bytes, 0, sizeof(desk->bytes));
}

void desk_check(const struct desk *desk, enum mechanism mechanism, unsigned int k)
{
	for (unsigned int j = 0; j < REQUESTS; j++)
		if (desk->bytes[j] != pattern((unsigned int)read_offset(j)))
			measure_fail("read1_disk by %s, K = %u: request %u left a wrong byte",
				     names[mechanism], k, j);
}
