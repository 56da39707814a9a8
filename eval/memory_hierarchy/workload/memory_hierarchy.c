// SPDX-License-Identifier: GPL-2.0-only
/*
 * The paper's test program (Fig. 2 to 4): for each pair of a width in user space and one in the
 * kernel, F times the evaluation function on both sides, in each order that is asked for. Each such
 * run is a region of the memory model (trapless_model.h), from which the counts come; on other
 * machines the marks do nothing. With --clocks each region is timed, and its events are counted
 * where the processor has counters. Runs on one CPU.
 *
 * Nothing is printed before all regions are done, because output causes interrupts. Before each
 * region the machine is left alone until a round time, so that the kernel finishes the work that it
 * has put off and its timer is in the same state in every region.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "../kmod/evaluation.h"
#include "perf_events.h"
#include "measure.h"
#include <trapless_model.h>
#include "orders.h"
#include "round_time.h"

#define ITERATIONS 512u		/* F and N of the paper */
#define BATCH 32u
#define STRIDE 128u
#define WARM 32u		/* as many as a batch */
#define ITERATIONS_MAX (1u << 20)
#define POINTS_MAX 1024u
#define ROUNDS_MAX 1000u
#define JITTER_MAX UINT32_MAX
#define KB 1024ul
#define SUPERVISOR_SHARE 95u	/* percent of the calls that must stay; interrupts take some out */

struct range {
	unsigned int first, last, step;	/* KB */
};

struct options {
	const char *orders;
	enum trap trap;
	struct range user, kernel;
	const char *rows;	/* '1' for each point of `user` that is run; NULL: all */
	struct pair pair;
	unsigned int warm;	/* iterations before those that are counted */
	unsigned int rounds;	/* of regions that are timed; 0: none are, the model counts */
};

struct tally {
	uint64_t made, executed;
};
static struct tally tallies[ORDERS];

static unsigned int points(struct range range)
{
	return (range.last - range.first) / range.step + 1;
}

/*
 * 64 bits that name a region: order (4), trap (4), N (16), widths in user space and kernel (20
 * each, KB). Read by cells.py.
 */
static uint64_t label(enum call_order order, enum trap trap, const struct pair *pair)
{
	return (uint64_t)order << 60 | (uint64_t)trap << 56 | (uint64_t)pair->n << 40 |
	       (uint64_t)(pair->user / KB) << 20 | pair->kernel / KB;
}

/* One region. The first iterations fill caches and TLBs, and are not counted. */
static void run_region(struct bench *bench, enum call_order order, const struct options *options,
		       const struct pair *pair)
{
	struct tally *tally = &tallies[order];
	enum trap trap = options->trap;
	struct pair warm = *pair;
	uint64_t before, executed;
	unsigned long bad;

	warm.iterations = options->warm;
	order_enter(bench, order);
	before = order_executed(bench, order);
	await_round_time();
	tl_model_label(label(order, trap, pair));
	tl_model_cold();
	bad = order_run(bench, order, trap, &warm);
	tl_model_begin();
	bad |= order_run(bench, order, trap, pair);
	tl_model_end();
	executed = order_executed(bench, order) - before;
	order_leave(bench, order);
	if (bad)
		measure_fail("%s, %lu and %lu bytes: a wrong sum or count (differs by 0x%lx)",
			     order_name(order), pair->user, pair->kernel, bad);
	tally->made += warm.iterations + pair->iterations;
	tally->executed += executed;
	if (order == SUPERVISOR ? executed * 100 < pair->iterations * SUPERVISOR_SHARE :
	    order != CONVENTIONAL && executed != warm.iterations + pair->iterations)
		measure_fail("%s, %lu and %lu bytes: %u calls made, %lu executed",
			     order_name(order), pair->user, pair->kernel,
			     warm.iterations + pair->iterations, (unsigned long)executed);
}

/* The argument of a timed run: one order of a bench. */
struct timed {
	struct bench *bench;
	enum call_order order;
	enum trap trap;
	struct pair pair;
	unsigned long bad;
};

static void run_timed(void *arg)
{
	struct timed *timed = arg;

	timed->bad |= order_run(timed->bench, timed->order, timed->trap, &timed->pair);
}

static void print_head(const struct timed *timed, const char *kind, unsigned int round)
{
	printf("{\"kind\": \"%s\", \"order\": \"%s\", \"user_kb\": %lu, \"kernel_kb\": %lu, "
	       "\"ops\": %u, \"repeat\": %u, ", kind, order_name(timed->order),
	       timed->pair.user / KB, timed->pair.kernel / KB, timed->pair.iterations, round);
}

/* A region by the clock, and once more with a group of events counted; each after warming up. */
static void time_region(struct timed *timed, const struct options *options, unsigned int round)
{
	struct timed warm = *timed;
	uint64_t value;

	warm.pair.iterations = options->warm;
	order_enter(timed->bench, timed->order);
	run_timed(&warm);
	measure_once(MEASURE_MEASURED, run_timed, timed, &value);
	print_head(timed, "measured", round);
	printf("\"value\": %lu, \"unit\": \"tsc\"}\n", value);
	if (events_count(round % events_groups(), run_timed, timed)) {
		print_head(timed, "events", round);
		events_print(round % events_groups());
		printf("}\n");
	}
	order_leave(timed->bench, timed->order);
	if (timed->bad || warm.bad)
		measure_fail("%s, %lu and %lu bytes: a wrong sum or count",
			     order_name(timed->order), timed->pair.user, timed->pair.kernel);
}

/* Orders by turns, in random order, in each round. */
static void time_pair(const struct options *options, struct bench *bench, const struct pair *pair)
{
	unsigned int orders[ORDERS], count = 0;

	for (unsigned int order = 0; order < ORDERS; order++)
		if (measure_list_has(options->orders, order_name((enum call_order)order)))
			orders[count++] = order;
	for (unsigned int round = 0; round < options->rounds; round++) {
		measure_shuffle(orders, count);
		for (unsigned int i = 0; i < count; i++) {
			struct timed timed = {
				.bench = bench, .order = (enum call_order)orders[i],
				.trap = options->trap, .pair = *pair,
			};

			time_region(&timed, options, round);
		}
	}
}

static void run_row(const struct options *options, struct bench *bench, unsigned int user)
{
	struct pair pair = options->pair;

	pair.user = user * KB;
	for (unsigned int k = options->kernel.first; k <= options->kernel.last;
	     k += options->kernel.step) {
		pair.kernel = k * KB;
		if (options->rounds) {
			time_pair(options, bench, &pair);
			continue;
		}
		for (unsigned int order = 0; order < ORDERS; order++)
			if (measure_list_has(options->orders, order_name((enum call_order)order)))
				run_region(bench, (enum call_order)order, options, &pair);
	}
}

static struct range parse_range(const char *option, const char *text)
{
	struct range range;
	char rest;

	if (sscanf(text, "%u:%u:%u%c", &range.first, &range.last, &range.step, &rest) != 3 ||
	    !range.step || range.last < range.first || points(range) > POINTS_MAX)
		measure_fail("%s: '%s' is not FIRST:LAST:STEP in KB, with a step of 1 or more and "
			     "at most %u points", option, text, POINTS_MAX);
	if (range.last * KB > EVALUATION_WIDTH_MAX)
		measure_fail("%s: a width of %u KB is more than the %lu KB that an array may have",
			     option, range.last, EVALUATION_WIDTH_MAX / KB);
	return range;
}

static unsigned int parse_stride(const char *text)
{
	uint64_t stride = measure_parse_number("--stride", text, UINT32_MAX);

	if (!stride || stride & (stride - 1) || stride >> (EVALUATION_STRIDE_MAX_LOG2 + 1))
		measure_fail("--stride: %s is not a power of two of 1 to %u bytes", text,
			     1u << EVALUATION_STRIDE_MAX_LOG2);
	return (unsigned int)stride;
}

static unsigned int parse_count(const char *option, const char *text, unsigned int limit)
{
	uint64_t count = measure_parse_number(option, text, limit);

	if (!count)
		measure_fail("%s: 0 is too few", option);
	return (unsigned int)count;
}

static void check(const struct options *options)
{
	for (unsigned int order = 0; order < ORDERS; order++)
		if (measure_list_has(options->orders, order_name((enum call_order)order)) &&
		    !order_has_trap((enum call_order)order, options->trap))
			measure_fail("--orders: %s has no trap of its own choice; use --trap fast",
				     order_name((enum call_order)order));
	if (options->rows && (strlen(options->rows) != points(options->user) ||
			      strspn(options->rows, "01") != strlen(options->rows)))
		measure_fail("--rows: '%s' is not one 0 or 1 for each of %u widths", options->rows,
			     points(options->user));
}

static struct options parse(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "orders", required_argument, NULL, 'o' },
		{ "trap", required_argument, NULL, 't' },
		{ "user", required_argument, NULL, 'u' },
		{ "kernel", required_argument, NULL, 'k' },
		{ "rows", required_argument, NULL, 'r' },
		{ "stride", required_argument, NULL, 's' },
		{ "iterations", required_argument, NULL, 'f' },
		{ "batch", required_argument, NULL, 'n' },
		{ "warm", required_argument, NULL, 'w' },
		{ "jitter", required_argument, NULL, 'j' },
		{ "clocks", required_argument, NULL, 'c' },
		{ 0 },
	};
	struct options options = {
		.orders = "conventional,batched", .trap = INT, .user = { 0, 256, 4 },
		.kernel = { 0, 256, 4 },
		.pair = { .stride = STRIDE, .iterations = ITERATIONS, .n = BATCH },
		.warm = WARM,
	};
	int option;

	while ((option = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (option) {
		case 'o': options.orders = optarg; break;
		case 'u': options.user = parse_range("--user", optarg); break;
		case 'k': options.kernel = parse_range("--kernel", optarg); break;
		case 'r': options.rows = optarg; break;
		case 's': options.pair.stride = parse_stride(optarg); break;
		case 'f':
			options.pair.iterations = parse_count("--iterations", optarg,
							      ITERATIONS_MAX);
			break;
		case 'n':
			options.pair.n = parse_count("--batch", optarg, TL_ENTRIES_MAX);
			break;
		case 'w':
			options.warm = (unsigned int)measure_parse_number("--warm", optarg,
									  ITERATIONS_MAX);
			break;
		case 'j':
			round_time_disturb(measure_parse_number("--jitter", optarg, JITTER_MAX));
			break;
		case 'c': options.rounds = parse_count("--clocks", optarg, ROUNDS_MAX); break;
		case 't':
			if (strcmp(optarg, trap_name(FAST)) && strcmp(optarg, trap_name(INT)))
				measure_fail("--trap: '%s' is neither fast nor int", optarg);
			options.trap = strcmp(optarg, trap_name(INT)) ? FAST : INT;
			break;
		default: exit(2);
		}
	}
	check(&options);
	return options;
}

int main(int argc, char **argv)
{
	struct options options = parse(argc, argv);
	unsigned long bytes = KB * (options.user.last > options.kernel.last ? options.user.last :
				    options.kernel.last);
	struct bench bench = { 0 };

	measure_pin(0);
	bench_open(&bench, options.orders, options.trap, bytes, options.pair.n);
	if (mlockall(MCL_CURRENT))
		measure_fail("memory cannot be locked");
	if (options.rounds) {
		measure_calibrate(MEASURE_MEASURED);
		events_open();
	}
	tl_model_on();
	for (unsigned int row = 0; row < points(options.user); row++) {
		if (!options.rows || options.rows[row] == '1')
			run_row(&options, &bench, options.user.first + row * options.user.step);
		if (options.rounds)
			measure_progress(row + 1, points(options.user));
	}

	for (unsigned int order = 0; order < ORDERS; order++)
		if (tallies[order].made)
			printf("{\"check\": \"%s.%s\", \"made\": %lu, \"executed\": %lu}\n",
			       order_name((enum call_order)order), trap_name(options.trap),
			       tallies[order].made, tallies[order].executed);
	bench_close(&bench);
	printf("{\"complete\": true}\n");
	return 0;
}
