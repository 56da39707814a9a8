// SPDX-License-Identifier: GPL-2.0-only
/*
 * Batches whose calls arrive in random order, made in the order given and in the library's own
 * (TL_UNORDERED): what sorting costs, and what it saves in the caches and TLBs. Two loads: the
 * evaluation function over D places of the kernel's array, K KB each (a descriptor for each place),
 * and a mix of real calls on a handful of files, sockets and events. Each run is a region of the
 * memory model (trapless_model.h). Runs in the lab's guest, on one CPU.
 *
 * A load is a table of calls with the results that they must have, made before the region: inside,
 * each is queued, and each result compared.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "random_loads.h"
#include "measure.h"
#include <trapless_model.h>
#include "round_time.h"

#define KB 1024ul

enum load { OBJECTS_LOAD, MIX_LOAD };
enum arrival { RANDOM, SORTED };

struct range {
	unsigned int first, last, step;
};

struct options {
	struct range objects, kernel;	/* D; K in KB */
	unsigned int batch[MEASURE_LIST_MAX], batch_count;	/* N */
	unsigned int calls, warm;	/* of a region: counted, and before those; whole batches */
	bool mix;
	const char *rows;	/* '1' for each D, or each N of the mix, that is run; NULL: all */
};

static struct tl_batch *batches[2];	/* strict, unordered */
static uint64_t made, executed;

/* load (4), arrival (4), free order (4), N (12), D (8), K in KB (16): part_reorder.py. */
static uint64_t label(enum load load, enum arrival arrival, unsigned int free, unsigned int n,
		      unsigned int objects, unsigned long width)
{
	return (uint64_t)load << 60 | (uint64_t)arrival << 56 | (uint64_t)free << 52 |
	       (uint64_t)n << 40 | (uint64_t)objects << 32 | width / KB;
}

/* The calls from..to-1, N a batch. Returns 0 when each did what it should. */
static unsigned long run(struct tl_batch *batch, const struct call *from, const struct call *to,
			 unsigned int n)
{
	unsigned long bad = 0;

	for (const struct call *call = from; call != to; call += n) {
		for (unsigned int i = 0; i < n; i++) {
			if (call[i].after_barrier)
				bad |= (unsigned long)tl_batch_barrier(batch);
			tl_batch_add(batch, call[i].nr, call[i].args[0], call[i].args[1],
				     call[i].args[2], call[i].args[3], 0, 0);
		}
		bad |= (unsigned long)tl_batch_flush(batch) ^ n;
		for (unsigned int i = 0; i < n; i++)
			bad |= (unsigned long)(tl_batch_result(batch, i) ^ call[i].result);
	}
	return bad;
}

static uint64_t count_executed(struct tl_batch *batch)
{
	struct tl_stats stats = { .size = sizeof(stats) };

	if (tl_batch_get_stats(batch, &stats))
		measure_fail("the module does not tell its counts");
	return stats.executed;
}

/* The first `warm` calls fill caches and TLBs and are not counted. */
static void run_region(const struct call *calls, unsigned int warm, unsigned int count,
		       unsigned int n, uint64_t name, bool free)
{
	struct tl_batch *batch = batches[free];
	uint64_t before = count_executed(batch);
	unsigned long bad;

	await_round_time();
	tl_model_label(name);
	tl_model_cold();
	bad = run(batch, calls, calls + warm, n);
	tl_model_begin();
	bad |= run(batch, calls + warm, calls + warm + count, n);
	tl_model_end();
	if (bad)
		measure_fail("region %016lx: a wrong result (differs by 0x%lx)",
			     (unsigned long)name, bad);
	before = count_executed(batch) - before;
	if (before != warm + count)
		measure_fail("region %016lx: %u calls made, %lu executed", (unsigned long)name,
			     warm + count, (unsigned long)before);
	made += warm + count;
	executed += before;
}

static unsigned int whole(unsigned int count, unsigned int n)
{
	return (count + n - 1) / n * n;
}

/* The same calls as they arrive and as the library would have them. */
static void run_both(enum load load, enum arrival arrival, const struct options *options,
		     const struct call *calls, unsigned int n, unsigned int objects,
		     unsigned long width)
{
	for (unsigned int free = 0; free < 2; free++)
		run_region(calls, whole(options->warm, n), whole(options->calls, n), n,
			   label(load, arrival, free, n, objects, width), free);
}

static void run_objects(const struct options *options, unsigned int objects)
{
	unsigned int n = options->batch[0];
	unsigned int count = whole(options->warm, n) + whole(options->calls, n);
	struct call *calls = calls_new(count);

	for (unsigned int k = options->kernel.first; k <= options->kernel.last;
	     k += options->kernel.step) {
		objects_fill(calls, count, objects, k * KB);
		run_both(OBJECTS_LOAD, RANDOM, options, calls, n, objects, k * KB);
	}
	free(calls);
}

static void run_mix(const struct options *options, unsigned int n)
{
	unsigned int count = whole(options->warm, n) + whole(options->calls, n);
	struct call *calls = calls_new(count);

	mix_fill(calls, count, n);
	run_both(MIX_LOAD, RANDOM, options, calls, n, 0, 0);
	calls_sort(calls, count, n);
	run_both(MIX_LOAD, SORTED, options, calls, n, 0, 0);
	free(calls);
}

static struct range parse_range(const char *option, const char *text, unsigned int most)
{
	struct range range;
	char rest;

	if (sscanf(text, "%u:%u:%u%c", &range.first, &range.last, &range.step, &rest) != 3 ||
	    !range.step || range.last < range.first || range.last > most)
		measure_fail("%s: '%s' is not FIRST:LAST:STEP up to %u", option, text, most);
	return range;
}

static void check(const struct options *options)
{
	if (!options->calls)
		measure_fail("--calls: 0 is too few");
	if (options->batch_count != 1 && !options->mix)
		measure_fail("--batch: one N, but for --mix");
	if (!options->objects.first)
		measure_fail("--objects: none are no load");
}

static struct options parse(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "objects", required_argument, NULL, 'o' },
		{ "kernel", required_argument, NULL, 'k' },
		{ "batch", required_argument, NULL, 'n' },
		{ "calls", required_argument, NULL, 'c' },
		{ "warm", required_argument, NULL, 'w' },
		{ "mix", no_argument, NULL, 'm' },
		{ "rows", required_argument, NULL, 'r' },
		{ "jitter", required_argument, NULL, 'j' },
		{ 0 },
	};
	struct options options = {
		.objects = { 2, 16, 2 }, .kernel = { 0, 128, 8 }, .batch = { 32 },
		.batch_count = 1, .calls = 128, .warm = 64,
	};
	int option;

	while ((option = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (option) {
		case 'o': options.objects = parse_range("--objects", optarg, OBJECTS_MAX); break;
		case 'k': options.kernel = parse_range("--kernel", optarg, WIDTH_MAX_KB); break;
		case 'n':
			options.batch_count =
				measure_parse_numbers(optarg, options.batch, BATCH_MAX);
			break;
		case 'c':
			options.calls =
				(unsigned int)measure_parse_number("--calls", optarg, CALLS_MAX);
			break;
		case 'w':
			options.warm =
				(unsigned int)measure_parse_number("--warm", optarg, CALLS_MAX);
			break;
		case 'm': options.mix = true; break;
		case 'r': options.rows = optarg; break;
		case 'j':
			round_time_disturb(measure_parse_number("--jitter", optarg, UINT32_MAX));
			break;
		default: exit(2);
		}
	}
	check(&options);
	return options;
}

/* Without --rows, all. */
static bool wanted(const struct options *options, unsigned int row)
{
	return !options->rows || (row < strlen(options->rows) && options->rows[row] == '1');
}

int main(int argc, char **argv)
{
	struct options options = parse(argc, argv);
	const struct range *objects = &options.objects;
	unsigned int row = 0;

	measure_pin(0);
	for (unsigned int free = 0; free < 2; free++)
		if (tl_batch_create(&batches[free], BATCH_MAX,
				    TL_MODULE | (free ? TL_UNORDERED : 0)))
			measure_fail("no ring for batches: is the module loaded?");
	if (options.mix)
		mix_open();
	else
		objects_open(objects->last, options.kernel.last * KB);
	if (mlockall(MCL_CURRENT | MCL_FUTURE))
		measure_fail("memory cannot be locked");
	tl_model_on();
	for (; options.mix && row < options.batch_count; row++)
		if (wanted(&options, row))
			run_mix(&options, options.batch[row]);
	for (; !options.mix && objects->first + row * objects->step <= objects->last; row++)
		if (wanted(&options, row))
			run_objects(&options, objects->first + row * objects->step);
	printf("{\"check\": \"calls\", \"made\": %lu, \"executed\": %lu}\n", (unsigned long)made,
	       (unsigned long)executed);
	printf("{\"complete\": true}\n");
	return 0;
}
