// SPDX-License-Identifier: GPL-2.0-only
/*
 * The workload of experiment programs: each subject by each mechanism that has it, one row of JSON
 * a run. It owns the order of things and the checks of counts; the Python beside it decides what to
 * run and makes figures of the rows.
 */
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "workload_clock.h"
#include "measure.h"
#include "options.h"

/*
 * The kernel frees a closed file some ticks later. Runs begin with the files of the last run freed,
 * because a new one costs less than one for which the allocator has to fetch memory.
 */
#define FREED_MS 40
#define WARM_UPS 3	/* runs of each mechanism before any is counted */
#define TICK_RETRIES 20	/* a counted run that a timer tick fell into is made again */

static const struct subject_row *const subjects[SUBJECTS] = {
	[FILE_CHAIN] = &file_row, [GETPPID] = &getppid_row, [COPY] = &copy_row,
	[ACCEPT] = &accept_row, [BURST] = &burst_row,
};

/* The counts of one run. */
struct counts {
	uint64_t value, crossings, calls, wakeups;
};

/* All runs of one mechanism and subject, warm-up included: the row of a check. */
struct tally {
	uint64_t made, executed, crossings;
};

static struct tally tallies[SUBJECTS][MECHANISMS];
static struct bench bench;

static struct options parse(int argc, char **argv)
{
	static const struct option long_options[] = { OPTIONS_SHARED, { NULL, 0, NULL, 0 } };
	struct options options = {
		.kind = MEASURE_MEASURED, .calls = "file,getppid,copy,accept,burst",
		.mechanisms = "plain,batch,program,c-blake,io_uring,io_uring-statx,"
			      "io_uring-bpf,psc",
		.directory = "/dev/shm", .repeats = 5, .seed = 1, .sizes = { 32 }, .size_count = 1,
	};
	int letter;

	while ((letter = getopt_long(argc, argv, "", long_options, NULL)) != -1)
		if (!options_take(&options, letter, optarg, FILES_MAX))
			measure_fail("usage: programs " OPTIONS_SHARED_USAGE);
	return options;
}

/* One run with its checks, just after a timer tick if so asked. False: a tick fell into it. */
static bool run_checked(enum measure_kind kind, enum subject s, enum mechanism mechanism,
			unsigned int n, bool after_tick, struct counts *counts)
{
	const struct subject_row *subject = subjects[s];
	struct run run = { .bench = &bench, .n = n };
	struct tally *tally = &tallies[s][mechanism];
	struct tl_stats before, after;
	bool clean, counted;

	sleep_ms(FREED_MS);
	subject->prepare(&bench, n);
	counted = bench_stats(&bench, mechanism, &before);
	if (after_tick)
		measure_await_tick();
	clean = measure_once(kind, subject->runners[mechanism], &run, &counts->value);
	if (run.bad)
		measure_fail("%s by %s, %u: a wrong result or count (differs by 0x%lx)",
			     subject->name, mechanism_name(mechanism), n, run.bad);
	counts->crossings = run.crossings;
	counts->calls = run.calls;
	counts->wakeups = 0;
	if (counted) {
		bench_stats(&bench, mechanism, &after);
		counts->crossings = after.crossings - before.crossings;
		counts->calls = after.executed - before.executed;
		counts->wakeups = after.wakeups - before.wakeups;
		if (after.refused != before.refused)
			measure_fail("%s by %s, %u: %lu calls were refused", subject->name,
				     mechanism_name(mechanism), n,
				     (unsigned long)(after.refused - before.refused));
	}
	subject->check(&bench, n, mechanism_name(mechanism));
	tally->made += subject->operations(n);
	tally->executed += counts->calls;
	tally->crossings += counts->crossings;
	return clean;
}

static void print_row(const struct options *options, enum subject s, enum mechanism mechanism,
		      unsigned int n, unsigned int repeat, unsigned int ticks,
		      const struct counts *counts)
{
	printf("{\"mechanism\": \"%s\", \"call\": \"%s\", \"n\": %u, \"kind\": \"%s\", "
	       "\"value\": %lu, \"unit\": \"%s\", \"ops\": %u, \"crossings\": %lu, "
	       "\"calls\": %lu, \"wakeups\": %lu, \"repeat\": %u, \"ticks\": %u}\n",
	       mechanism_name(mechanism), subjects[s]->name, n,
	       options->kind == MEASURE_COUNTED ? "counted" : "measured", counts->value,
	       measure_unit(options->kind), subjects[s]->operations(n), counts->crossings,
	       counts->calls, counts->wakeups, repeat, ticks);
}

/* Counted: each repeat is one run without a tick. */
static void count_one(const struct options *options, enum subject s, enum mechanism mechanism,
		      unsigned int n)
{
	struct counts counts;

	for (unsigned int repeat = 0; repeat < options->repeats; repeat++) {
		unsigned int ticks = 0;

		while (!run_checked(options->kind, s, mechanism, n, ticks, &counts))
			if (++ticks == TICK_RETRIES)
				measure_fail("%s by %s, %u: a timer tick in each of %u runs",
					     subjects[s]->name, mechanism_name(mechanism), n,
					     ticks);
		print_row(options, s, mechanism, n, repeat, ticks, &counts);
	}
}

/* Measured: in each round every mechanism once, in a seeded random order, after a warm-up. */
static void measure_round(const struct options *options, enum subject s, unsigned int *mechanisms,
			  unsigned int count, unsigned int n, unsigned int repeat)
{
	measure_shuffle(mechanisms, count);
	for (unsigned int i = 0; i < count; i++) {
		enum mechanism mechanism = (enum mechanism)mechanisms[i];
		struct counts counts;

		run_checked(options->kind, s, mechanism, n, false, &counts);
		run_checked(options->kind, s, mechanism, n, false, &counts);
		print_row(options, s, mechanism, n, repeat, 0, &counts);
	}
}

static void run_size(const struct options *options, enum subject s, unsigned int n)
{
	unsigned int mechanisms[MECHANISMS], count = 0;

	for (unsigned int m = 0; m < MECHANISMS; m++)
		if (bench.open[m] && subjects[s]->runners[m])
			mechanisms[count++] = m;
	if (options->kind == MEASURE_COUNTED) {
		struct counts counts;

		/* The kernel's caches of memory then have enough for any of them. */
		for (unsigned int i = 0; i < WARM_UPS * count; i++)
			run_checked(options->kind, s, (enum mechanism)mechanisms[i % count], n,
				    false, &counts);
		for (unsigned int i = 0; i < count; i++)
			count_one(options, s, (enum mechanism)mechanisms[i], n);
		return;
	}
	for (unsigned int repeat = 0; repeat < options->repeats; repeat++)
		measure_round(options, s, mechanisms, count, n, repeat);
}

static void run_subject(const struct options *options, enum subject s)
{
	const struct subject_row *subject = subjects[s];

	subject->create(&bench, options->directory);
	if (subject->fixed) {
		for (unsigned int i = 0; i < 3 && subject->sizes[i]; i++)
			run_size(options, s, subject->sizes[i]);
		return;
	}
	for (unsigned int i = 0; i < options->size_count; i++)
		run_size(options, s, options->sizes[i]);
}

static void print_checks(void)
{
	for (unsigned int m = 0; m < MECHANISMS; m++) {
		if (!bench.open[m])
			printf("{\"skipped\": \"%s\", \"reason\": \"%s\"}\n",
			       mechanism_name((enum mechanism)m), bench.reason[m]);
		for (unsigned int s = 0; s < SUBJECTS; s++) {
			const struct tally *tally = &tallies[s][m];

			if (tally->made)
				printf("{\"check\": \"%s.%s\", \"made\": %lu, \"executed\": %lu, "
				       "\"crossings\": %lu}\n", subjects[s]->name,
				       mechanism_name((enum mechanism)m), tally->made,
				       tally->executed, tally->crossings);
		}
	}
}

int main(int argc, char **argv)
{
	struct options options = parse(argc, argv);
	unsigned int done = 0, total = 0;

	measure_pin(0);
	measure_seed(options.seed);
	measure_calibrate(options.kind);
	bench_open(&bench, options.mechanisms);
	for (unsigned int s = 0; s < SUBJECTS; s++)
		total += measure_list_has(options.calls, subjects[s]->name);
	if (!total)
		measure_fail("--calls: none of '%s' is known", options.calls);
	for (unsigned int s = 0; s < SUBJECTS; s++) {
		if (!measure_list_has(options.calls, subjects[s]->name))
			continue;
		run_subject(&options, (enum subject)s);
		measure_progress(++done, total);
	}
	print_checks();
	bench_close(&bench);
	printf("{\"complete\": true}\n");
	return 0;
}
