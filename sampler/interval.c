// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Measures how closely reads follow one another. It owns the loop that reads one place without
 * pause and notes the time of each read. The processor's counter gives the time where it runs
 * evenly, because reading the system's clock would take longer than a read; the system's clock
 * calibrates the counter over the whole run. An interval contains the read, the note, and all else
 * that the processor did. The cost of a read alone is measured separately, by many reads between
 * two notes.
 */
#include "interval.h"

#include <cpuid.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <x86intrin.h>

#include "clock.h"
#include "limits.h"

#define WARM_UP_READS 1000u
#define CALIBRATE_NS 50000000ull	/* at least, between two looks at the system's clock */
#define CLOCK_READS 10000u
#define BLOCKS_MAX 501u
#define BLOCK_READS 500u
#define DELAYS 64u	/* different ones between two notes, to find the clock's step */

struct notes {
	bool counter;		/* the processor's; else the system's clock, in ns */
	double ns_per_tick;
	uint64_t changes;	/* reads that differ from the one before: the target lives */
	double bare_ticks;	/* of a read without notes */
	uint32_t ticks[];	/* from one read to the next, saturated */
};

static bool counter_is_even(void)
{
	unsigned int a, b, c, d;

	return __get_cpuid(0x80000007u, &a, &b, &c, &d) && (d & (1u << 8));
}

/* The counter is read after all earlier instructions, including the loads of a read. */
static inline uint64_t tick(bool counter)
{
	unsigned int cpu;

	return counter ? __rdtscp(&cpu) : clock_read(CLOCK_MONOTONIC_RAW);
}

static int read_again(const struct interval_test *test, struct source *source,
		      struct notes *notes, uint32_t reads)
{
	uint8_t into[FIELD_BYTES_MAX];
	uint64_t before = tick(notes->counter);
	uint32_t i, word, last = 0;

	for (i = 0; i < reads; i++) {
		int status = source_read(source, test->address, into, test->bytes);
		uint64_t after = tick(notes->counter);

		if (status)
			return status;
		memcpy(&word, into, sizeof(word));
		notes->changes += word != last;
		last = word;
		notes->ticks[i] = after - before > UINT32_MAX ? UINT32_MAX
							      : (uint32_t)(after - before);
		before = after;
	}
	return 0;
}

static int by_value(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

/* The cost of one note: the median between two notes with nothing between them. */
static uint32_t clock_ticks(const struct notes *notes)
{
	static uint32_t ticks[CLOCK_READS];
	uint64_t before = tick(notes->counter);
	unsigned int i;

	for (i = 0; i < CLOCK_READS; i++) {
		uint64_t after = tick(notes->counter);

		ticks[i] = (uint32_t)(after - before);
		before = after;
	}
	qsort(ticks, CLOCK_READS, sizeof(ticks[0]), by_value);
	return ticks[CLOCK_READS / 2];
}

/* The clock's step: the widest gap between the times that various delays take. */
static uint32_t clock_step(const struct notes *notes)
{
	static uint32_t ticks[CLOCK_READS];
	uint32_t step = 0;
	unsigned int i;

	for (i = 0; i < CLOCK_READS; i++) {
		uint64_t before = tick(notes->counter);
		volatile unsigned int delay = i % DELAYS;

		while (delay)
			delay--;
		ticks[i] = (uint32_t)(tick(notes->counter) - before);
	}
	qsort(ticks, CLOCK_READS, sizeof(ticks[0]), by_value);
	/* The longer half also contains the pauses of the processor. */
	for (i = 1; i < CLOCK_READS / 2; i++)
		if (ticks[i] - ticks[i - 1] > step)
			step = ticks[i] - ticks[i - 1];
	return step;
}

/* The time of a read without that of a note: the median of blocks of reads between two notes. */
static int measure_bare(const struct interval_test *test, struct source *source,
			struct notes *notes)
{
	static uint32_t ticks[BLOCKS_MAX];
	uint8_t into[FIELD_BYTES_MAX];
	unsigned int blocks = test->reads / BLOCK_READS + 1, block, i;

	if (blocks > BLOCKS_MAX)
		blocks = BLOCKS_MAX;
	for (block = 0; block < blocks; block++) {
		uint64_t before = tick(notes->counter);
		int status = 0;

		for (i = 0; i < BLOCK_READS && !status; i++)
			status = source_read(source, test->address, into, test->bytes);
		ticks[block] = (uint32_t)(tick(notes->counter) - before);
		if (status)
			return status;
	}
	qsort(ticks, blocks, sizeof(ticks[0]), by_value);
	notes->bare_ticks = ((double)ticks[blocks / 2] - clock_ticks(notes)) / BLOCK_READS;
	return 0;
}

/* The measured run; the system's clock around it calibrates the counter. */
static int measure(const struct interval_test *test, struct source *source, struct notes *notes,
		   double *total_ns)
{
	uint64_t clock_from = clock_read(CLOCK_MONOTONIC_RAW), clock_to;
	uint64_t from = tick(notes->counter), to, done;
	int status = read_again(test, source, notes, test->reads);

	done = tick(notes->counter);
	do {
		clock_to = clock_read(CLOCK_MONOTONIC_RAW);
		to = tick(notes->counter);
	} while (clock_to - clock_from < CALIBRATE_NS);
	notes->ns_per_tick = (double)(clock_to - clock_from) / (double)(to - from);
	*total_ns = (double)(done - from) * notes->ns_per_tick;
	return status;
}

static void print(const struct interval_test *test, const struct source *source,
		  struct notes *notes, double total_ns, FILE *out)
{
	static const double parts[] = {
		0, .01, .05, .1, .2, .3, .4, .5, .6, .7, .8, .9, .95, .98, .99, .995, .998,
		.999, .9995, .9999, .99999, 1,
	};
	uint32_t overhead = clock_ticks(notes), most = test->reads - test->reads / 100;
	double sum = 0;
	size_t i;

	qsort(notes->ticks, test->reads, sizeof(notes->ticks[0]), by_value);
	for (i = 0; i < most; i++)
		sum += notes->ticks[i];
	fprintf(out, "{\"interval\": \"%s\", \"bytes\": %" PRIu32 ", \"reads\": %" PRIu32
		", \"clock\": \"%s\", \"tick_ns\": %.3f, \"clock_ns\": %.2f, \"step_ns\": %.2f"
		", \"bare_ns\": %.3f, \"total_ns\": %.0f, \"mean99_ns\": %.2f"
		", \"changes\": %" PRIu64 ", \"quantiles\": [",
		source->kind->name, test->bytes, test->reads,
		notes->counter ? "tsc" : "monotonic-raw", notes->ns_per_tick,
		overhead * notes->ns_per_tick, clock_step(notes) * notes->ns_per_tick,
		notes->bare_ticks * notes->ns_per_tick, total_ns, sum / most * notes->ns_per_tick,
		notes->changes);
	for (i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		/* The smallest interval that this part of all intervals does not exceed. */
		double rank = parts[i] * test->reads;
		uint32_t place = (uint32_t)rank - (rank > 0 && rank == (uint32_t)rank);

		fprintf(out, "%s[%g, %.2f]", i ? ", " : "", parts[i],
			notes->ticks[place] * notes->ns_per_tick);
	}
	fprintf(out, "]}\n");
	fflush(out);
}

int interval_measure(const struct interval_test *test, struct source *source, FILE *out,
		     char *error)
{
	struct notes *notes = calloc(1, sizeof(*notes) + test->reads * sizeof(notes->ticks[0]));
	double total_ns;
	int status;

	if (!notes)
		return source_fail(error, -ENOMEM, "no memory to note %u reads", test->reads);
	notes->counter = counter_is_even();
	memset(notes->ticks, 1, test->reads * sizeof(notes->ticks[0]));	/* pages, now */
	status = read_again(test, source, notes,
			    test->reads < WARM_UP_READS ? test->reads : WARM_UP_READS);
	notes->changes = 0;
	if (!status)
		status = measure(test, source, notes, &total_ns);
	if (!status)
		status = measure_bare(test, source, notes);
	if (!status)
		status = source_check(source);
	if (!status)
		print(test, source, notes, total_ns, out);
	else if (status == -ENODEV)
		source_fail(error, status, "the memory went away while it was read%s%s",
			    source->kind->reason ? ": " : "",
			    source->kind->reason ? source->kind->reason(source) : "");
	else
		source_fail(error, status, "%u bytes at %#" PRIx64 " cannot be read; the source "
			    "ends at %#" PRIx64, test->bytes, test->address, source->size);
	free(notes);
	return status;
}
