// SPDX-License-Identifier: GPL-2.0-only
/*
 * See orders.h. Every sum is compared as soon as it is known. The comparison is counted, because a
 * program looks at its results, too.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../../stat/estimate/int80.h"
#include "../kmod/evaluation.h"
#include "measure.h"
#include "mode.h"
#include "orders.h"

#define INLINED static inline __attribute__((always_inline))
#define PAGE 4096ul

static const char *const names[ORDERS] = {
	[CONVENTIONAL] = "conventional", [BATCHED] = "batched", [WORKERS] = "workers",
	[SUPERVISOR] = "supervisor",
};
static const char *const traps[TRAPS] = { [FAST] = "fast", [INT] = "int" };

const char *order_name(enum call_order order)
{
	return names[order];
}

const char *trap_name(enum trap trap)
{
	return traps[trap];
}

bool order_has_trap(enum call_order order, enum trap trap)
{
	return trap == FAST || order == CONVENTIONAL || order == BATCHED;
}

/* ---- The loops ---------------------------------------------------------------------------- */

/* The setup of a run, kept out of the loop. */
struct run {
	const unsigned char *array;
	unsigned long user, stride, user_sum, kernel_sum;
	long argument;	/* of the call */
	int file;
	unsigned int iterations, n;
};

/* The sum that a whole pass must give; of the array's own bytes, so of both sides alike. */
static unsigned long expected(unsigned long width, unsigned long stride)
{
	unsigned long sum = 0;

	for (unsigned long at = 0; at < width; at += stride)
		sum += evaluation_byte(at);
	return sum;
}

INLINED unsigned long user_function(const struct run *run)
{
	return evaluate(run->array, run->user, run->stride) ^ run->user_sum;
}

INLINED unsigned long run_calls(const struct run *run, bool by_int)
{
	unsigned long bad = 0;

	for (unsigned int i = 0; i < run->iterations; i++) {
		long sum;

		bad |= user_function(run);
		sum = by_int ? trap_int3(INT_NR_LSEEK, (uint64_t)run->file,
					 (uint64_t)run->argument, 0)
			     : trap_fast3(SYS_lseek, (uint64_t)run->file,
					  (uint64_t)run->argument, 0);
		bad |= (unsigned long)sum ^ run->kernel_sum;
	}
	return bad;
}

INLINED unsigned int order_batch_of(const struct run *run, unsigned int done)
{
	unsigned int left = run->iterations - done;

	return left < run->n ? left : run->n;
}

INLINED unsigned long run_batches(const struct run *run, struct raw_ring *raw, bool by_int)
{
	unsigned long bad = 0;
	unsigned int n;

	for (unsigned int i = 0; i < run->iterations; i += n) {
		n = order_batch_of(run, i);
		for (unsigned int j = 0; j < n; j++) {
			bad |= user_function(run);
			TL_ADD(&raw->batch, SYS_lseek, run->file, run->argument, 0);
		}
		bad |= (unsigned long)raw_ring_enter(raw, n, by_int) ^ n;
		for (unsigned int j = 0; j < n; j++)
			bad |= (unsigned long)tl_batch_result(&raw->batch, j) ^ run->kernel_sum;
	}
	return bad;
}

static unsigned long run_workers(const struct run *run, struct tl_psc *psc)
{
	unsigned int slots[TL_ENTRIES_MAX], n;
	unsigned long bad = 0;

	for (unsigned int i = 0; i < run->iterations; i += n) {
		n = order_batch_of(run, i);
		for (unsigned int j = 0; j < n; j++) {
			bad |= user_function(run);
			slots[j] = (unsigned int)TL_PSC_ADD(psc, SYS_lseek, run->file,
							    run->argument, 0);
		}
		bad |= (unsigned long)tl_psc_wait(psc, 0);
		for (unsigned int j = 0; j < n; j++) {
			int64_t sum = -1;

			bad |= (unsigned long)tl_psc_result(psc, slots[j], &sum) ^ 1;
			bad |= (unsigned long)sum ^ run->kernel_sum;
		}
	}
	return bad;
}

unsigned long order_run(struct bench *bench, enum call_order order, enum trap trap,
			const struct pair *pair)
{
	const struct run run = {
		.array = bench->array, .file = bench->file,
		.user = pair->user, .stride = pair->stride,
		.user_sum = expected(pair->user, pair->stride),
		.kernel_sum = expected(pair->kernel, pair->stride),
		.argument = EVALUATION(pair->kernel, __builtin_ctzl(pair->stride)),
		.iterations = pair->iterations, .n = pair->n,
	};

	switch (order) {
	case BATCHED:
		return trap == INT ? run_batches(&run, &bench->raw, true)
				   : run_batches(&run, &bench->raw, false);
	case WORKERS:
		return run_workers(&run, bench->psc);
	default:
		return trap == INT ? run_calls(&run, true) : run_calls(&run, false);
	}
}

/* ---- Opening and closing -------------------------------------------------------------------- */

/* Pages of 4 KB, all there; the kernel's own array is made alike. */
static const unsigned char *make_array(unsigned long bytes)
{
	unsigned long length = (bytes + PAGE - 1) / PAGE * PAGE;
	unsigned char *array;

	if (!length)
		length = PAGE;
	array = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (array == MAP_FAILED)
		measure_fail("no memory for an array of %lu bytes: %s", length, strerror(errno));
	if (madvise(array, length, MADV_NOHUGEPAGE) && errno != EINVAL)
		measure_fail("no small pages: %s", strerror(errno));
	for (unsigned long at = 0; at < length; at++)
		array[at] = evaluation_byte(at);
	return array;
}

static unsigned int power_of_two(unsigned int n)
{
	unsigned int power = 1;

	while (power < n)
		power *= 2;
	return power;
}

void bench_open(struct bench *bench, const char *orders, enum trap trap, unsigned long bytes,
		unsigned int n)
{
	const char *why;
	int error;

	bench->array = make_array(bytes);
	bench->file = open("/dev/" EVALUATION_DEVICE, O_RDONLY | O_CLOEXEC);
	if (bench->file < 0)
		measure_fail("/dev/" EVALUATION_DEVICE ": %s; insert hierarchy.ko first",
			     strerror(errno));
	if (lseek(bench->file, EVALUATION(bytes, 12), SEEK_SET) < 0)
		measure_fail("the kernel's array has less than %lu bytes: insert hierarchy.ko with "
			     "bytes=%lu", bytes, bytes);
	if (trap == INT && !int80_works())
		measure_fail("this kernel makes no calls by int $0x80; use --trap fast");
	if (measure_list_has(orders, names[BATCHED])) {
		error = raw_ring_open(&bench->raw, power_of_two(n));
		if (error)
			measure_fail("no ring for batches: %s", strerror(-error));
	}
	if (measure_list_has(orders, names[WORKERS])) {
		error = tl_psc_create(&bench->psc, power_of_two(n), 0, TL_MODULE);
		if (!error)
			error = tl_psc_start(bench->psc, 1);
		if (error)
			measure_fail("no workers: %s", strerror(-error));
	}
	bench->module = -1;
	if (measure_list_has(orders, names[SUPERVISOR])) {
		bench->module = mode_open(&why);
		if (bench->module < 0)
			measure_fail("no supervisor mode: %s", why);
	}
}

void bench_close(struct bench *bench)
{
	if (bench->module >= 0)
		close(bench->module);
	if (bench->psc)
		tl_psc_destroy(bench->psc);
	if (bench->raw.batch.requests)
		raw_ring_close(&bench->raw);
	close(bench->file);
}

void order_enter(struct bench *bench, enum call_order order)
{
	if (order != SUPERVISOR)
		return;
	mode_switch(bench->module, 0, TL_MODE_SUPERVISOR, 0);
	trap_fast0(SYS_getppid); /* at most one call late */
	if (mode_level())
		measure_fail("supervisor mode was asked for, and the level is %u", mode_level());
}

void order_leave(struct bench *bench, enum call_order order)
{
	if (order == SUPERVISOR)
		mode_switch(bench->module, 0, TL_MODE_USER, 0);
	trap_fast0(SYS_getppid);
}

uint64_t order_executed(struct bench *bench, enum call_order order)
{
	struct tl_stats stats = { .size = sizeof(stats) };
	struct tl_process counts;
	int error = 0;

	switch (order) {
	case BATCHED:
		error = ioctl(bench->raw.fd, TL_IOC_STATS, &stats) ? -errno : 0;
		break;
	case WORKERS:
		error = tl_psc_get_stats(bench->psc, &stats);
		break;
	case SUPERVISOR:
		mode_counts(bench->module, getpid(), &counts);
		return mode_calls_stayed(&counts);
	default:
		break;
	}
	if (error)
		measure_fail("statistics of order %s: %s", names[order], strerror(-error));
	return stats.executed;
}
