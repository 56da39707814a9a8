// SPDX-License-Identifier: GPL-2.0-only
/*
 * 16 reads from a slow block device while the requester has other work to do. Work is counted in
 * units of some microseconds; the longest time between two units is how long the requester stood
 * still. It owns that comparison, not the device, which spec.py makes slow.
 */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "workload_clock.h"
#include "crew.h"
#include "measure.h"
#include "slow_read.h"

#define READS 16u
#define RING_ENTRIES 128u
#define BLOCK 4096u
#define UNIT_ROUNDS 400u	/* size of one unit of other work */
#define BASELINE_UNITS 20000u
#define PROBES 4u		/* plain reads that tell how slow the device is */

enum way { WAY_PLAIN, WAY_PSC, WAY_URING, WAYS };

static const char *const names[WAYS] = { "plain", "psc", "io_uring" };

struct slow {
	int fd;
	uint8_t *blocks;		/* READS blocks, aligned for O_DIRECT */
	struct crew crew;
	struct io_uring uring;
	int slots[READS];
	bool done[READS];
	unsigned int finished;
	uint64_t period_ns;		/* a read is asked for that often */
};

struct outcome {
	uint64_t units, elapsed_ns, gap_ns;
};

/* Work that needs nothing from the kernel. */
static void work_unit(void)
{
	static volatile uint64_t sink;
	uint64_t x = sink | 1;

	for (unsigned int i = 0; i < UNIT_ROUNDS; i++)
		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
	sink = x;
}

static uint8_t pattern(unsigned int block, unsigned int at)
{
	return (uint8_t)(1 + (block * 131u + at * 7u) % 255u);
}

static void fill_device(struct slow *slow)
{
	for (unsigned int b = 0; b < READS; b++)
		for (unsigned int i = 0; i < BLOCK; i++)
			slow->blocks[b * BLOCK + i] = pattern(b, i);
	if (pwrite(slow->fd, slow->blocks, READS * BLOCK, 0) != READS * BLOCK)
		measure_fail("writing to the slow device: %s", strerror(errno));
}

static void check_blocks(const struct slow *slow, enum way way)
{
	for (unsigned int b = 0; b < READS; b++)
		for (unsigned int i = 0; i < BLOCK; i++)
			if (slow->blocks[b * BLOCK + i] != pattern(b, i))
				measure_fail("slow read by %s: block %u holds wrong data",
					     names[way], b);
}

static void finish(struct slow *slow, unsigned int read, int64_t result, enum way way)
{
	if (result != BLOCK)
		measure_fail("slow read by %s: read %u returned %ld", names[way], read,
			     (long)result);
	slow->done[read] = true;
	slow->finished++;
}

static void ask(struct slow *slow, unsigned int read, enum way way)
{
	uint8_t *block = slow->blocks + read * BLOCK;
	struct io_uring_sqe *sqe;

	switch (way) {
	case WAY_PLAIN:
		finish(slow, read, pread(slow->fd, block, BLOCK, read * BLOCK), way);
		break;
	case WAY_PSC:
		slow->slots[read] = tl_psc_add(slow->crew.psc, SYS_pread64, (uint64_t)slow->fd,
					       (uintptr_t)block, BLOCK, read * BLOCK, 0, 0);
		if (slow->slots[read] < 0 || tl_psc_notify(slow->crew.psc) < 0)
			measure_fail("slow read by psc: read %u not accepted", read);
		break;
	default:
		sqe = io_uring_get_sqe(&slow->uring);
		io_uring_prep_read(sqe, slow->fd, block, BLOCK, read * BLOCK);
		sqe->user_data = read;
		if (io_uring_submit(&slow->uring) != 1)
			measure_fail("slow read by io_uring: read %u not accepted", read);
		break;
	}
}

static void collect(struct slow *slow, unsigned int asked, enum way way)
{
	struct io_uring_cqe *cqe;
	int64_t result;

	if (way == WAY_PSC) {
		for (unsigned int read = 0; read < asked; read++)
			if (!slow->done[read] &&
			    tl_psc_result(slow->crew.psc, (unsigned int)slow->slots[read],
					  &result))
				finish(slow, read, result, way);
	} else if (way == WAY_URING) {
		while (!io_uring_peek_cqe(&slow->uring, &cqe)) {
			finish(slow, (unsigned int)cqe->user_data, cqe->res, way);
			io_uring_cqe_seen(&slow->uring, cqe);
		}
	}
}

static struct outcome run_way(struct slow *slow, enum way way)
{
	struct outcome outcome = { 0 };
	unsigned int asked = 0;
	uint64_t began, last;

	memset(slow->blocks, 0, READS * BLOCK);
	memset(slow->done, 0, sizeof(slow->done));
	slow->finished = 0;
	began = last = now_ns();
	while (slow->finished < READS) {
		uint64_t now;

		if (asked < READS && last - began >= asked * slow->period_ns)
			ask(slow, asked++, way);
		collect(slow, asked, way);
		work_unit();
		outcome.units++;
		now = now_ns();
		if (now - last > outcome.gap_ns)
			outcome.gap_ns = now - last;
		last = now;
	}
	outcome.elapsed_ns = last - began;
	check_blocks(slow, way);
	return outcome;
}

/* The same loop with nothing to read: how fast the work goes, and the machine's own pauses. */
static struct outcome run_baseline(void)
{
	struct outcome outcome = { .units = BASELINE_UNITS };
	uint64_t began = now_ns(), last = began;

	for (unsigned int i = 0; i < BASELINE_UNITS; i++) {
		uint64_t now;

		work_unit();
		now = now_ns();
		if (now - last > outcome.gap_ns)
			outcome.gap_ns = now - last;
		last = now;
	}
	outcome.elapsed_ns = last - began;
	return outcome;
}

static uint64_t probe_latency(struct slow *slow)
{
	uint64_t best = UINT64_MAX;

	for (unsigned int i = 0; i < PROBES; i++) {
		uint64_t began = now_ns(), took;

		if (pread(slow->fd, slow->blocks, BLOCK, i * BLOCK) != BLOCK)
			measure_fail("reading the slow device: %s", strerror(errno));
		took = now_ns() - began;
		if (took < best)
			best = took;
	}
	return best;
}

static void print_outcome(const char *mechanism, struct outcome outcome, unsigned int workers,
			  uint64_t latency_ns, unsigned int repeat)
{
	printf("{\"mechanism\": \"%s\", \"call\": \"slow_read\", \"n\": %u, \"workers\": %u, "
	       "\"kind\": \"measured\", \"value\": %lu, \"unit\": \"ns\", \"ops\": %u, "
	       "\"units\": %lu, \"gap_ns\": %lu, \"latency_ns\": %lu, \"repeat\": %u}\n",
	       mechanism, READS, workers, outcome.elapsed_ns, READS, outcome.units, outcome.gap_ns,
	       latency_ns, repeat);
}

void slow_read(const char *device, unsigned int workers, unsigned int repeats)
{
	struct slow slow = { .fd = open(device, O_RDWR | O_DIRECT | O_CLOEXEC) };
	struct tl_stats stats = { .size = sizeof(stats) };
	uint64_t latency_ns;
	void *blocks;

	if (slow.fd < 0)
		measure_fail("open %s: %s", device, strerror(errno));
	if (posix_memalign(&blocks, BLOCK, READS * BLOCK))
		measure_fail("no memory for %u blocks", READS);
	slow.blocks = blocks;
	fill_device(&slow);
	latency_ns = probe_latency(&slow);
	slow.period_ns = latency_ns / 2;
	crew_open(&slow.crew, RING_ENTRIES, workers, 0, TL_MODULE);
	if (io_uring_queue_init(READS, &slow.uring, 0))
		measure_fail("no io_uring");
	for (unsigned int repeat = 0; repeat < repeats; repeat++) {
		unsigned int order[WAYS] = { WAY_PLAIN, WAY_PSC, WAY_URING };

		print_outcome("none", run_baseline(), 0, latency_ns, repeat);
		measure_shuffle(order, WAYS);
		for (unsigned int i = 0; i < WAYS; i++) {
			enum way way = (enum way)order[i];

			print_outcome(names[way], run_way(&slow, way),
				      way == WAY_PSC ? workers : 0, latency_ns, repeat);
		}
	}
	if (tl_psc_get_stats(slow.crew.psc, &stats) || stats.executed != (uint64_t)READS * repeats)
		measure_fail("slow read by psc: %u reads made, %lu executed", READS * repeats,
			     (unsigned long)stats.executed);
	printf("{\"check\": \"slow_read.psc\", \"made\": %u, \"executed\": %lu}\n",
	       READS * repeats, (unsigned long)stats.executed);
	io_uring_queue_exit(&slow.uring);
	crew_close(&slow.crew);
	free(slow.blocks);
	close(slow.fd);
}
