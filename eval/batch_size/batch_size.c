// SPDX-License-Identifier: GPL-2.0-only
/*
 * The workload of experiment batch-size: for each call and each batch size N, 512 calls by every
 * mechanism, one row of JSON a measurement. It owns the order of things and the checks; spec.py
 * decides what to run and makes figures of the rows.
 */
#include <stdio.h>
#include <string.h>
#include <sys/vfs.h>

#include "perf_events.h"
#include "measure.h"
#include "mechanisms.h"
#include "options.h"

#define TICK_SHARE 2500000u	/* instructions: of the 4 million between ticks at 250 a second */
#define POLLED_BATCHES 4	/* batches of SQPOLL in one measurement */
#define TICK_RETRIES 20		/* a counted run that a timer tick fell into is made again */

/* Totals over all runs of one mechanism and subject, warm-up included: the row of a check. */
struct tally {
	uint64_t made, executed, batches, crossings;
};

static struct tally tallies[MECHANISMS][SUBJECTS];

static struct options parse(int argc, char **argv, const char **disk, bool *counters)
{
	static const struct option long_options[] = {
		OPTIONS_SHARED, { "disk", required_argument, NULL, 'f' },
		{ "counters", no_argument, NULL, 'e' }, { NULL, 0, NULL, 0 },
	};
	struct options options = {
		.kind = MEASURE_MEASURED, .calls = "nosys,getpid,getppid,read1,read4k,write1,stat",
		.mechanisms = "plain,plain-int,batch,batch-int,batch-plain,io_uring,"
			      "io_uring-sqpoll",
		.directory = "/dev/shm/batch-size", .polled = "getppid,read1", .repeats = 5,
		.seed = 1, .sizes = { 32 }, .size_count = 1,
	};
	int letter;

	while ((letter = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
		if (letter == 'f')
			*disk = optarg;
		else if (letter == 'e')
			*counters = true;
		else if (!options_take(&options, letter, optarg, SUBJECT_BATCH_MAX))
			measure_fail("usage: batch-size " OPTIONS_SHARED_USAGE " [--disk DIR] "
				     "[--counters]");
	}
	return options;
}

/*
 * Where another CPU must answer each batch, a few batches are enough: on a busy host each waits for
 * that CPU's turn.
 */
static unsigned int calls_of(enum mechanism mechanism, enum subject subject, unsigned int n)
{
	unsigned int calls = subject_calls(subject, n);

	return mechanism == URING_SQPOLL && calls > POLLED_BATCHES * n ? POLLED_BATCHES * n : calls;
}

/* One run with its checks: results, data left behind, and what the kernel says it executed. */
static bool run_checked(const struct options *options, struct bench *bench,
			enum mechanism mechanism, enum subject subject, unsigned int n,
			unsigned int calls, uint64_t *value)
{
	struct run run = { .bench = bench, .n = n, .calls = calls };
	struct tally *tally = &tallies[mechanism][subject];
	struct tl_stats before, after;
	bool counts, clean;

	fixture_clear(bench->fixture, subject);
	counts = bench_stats(bench, mechanism, &before);
	clean = measure_once(options->kind, bench_runner(mechanism, subject), &run, value);
	if (run.bad)
		measure_fail("%s by %s, N = %u: a wrong result or count (differs by 0x%lx)",
			     subject_name(subject), mechanism_name(mechanism), n, run.bad);
	fixture_check(bench->fixture, subject, mechanism_stat_form(mechanism), n, run.calls,
		      mechanism_name(mechanism));
	tally->made += run.calls;
	tally->batches += run.calls / n;
	if (!counts)
		return clean;
	bench_stats(bench, mechanism, &after);
	tally->executed += after.executed - before.executed;
	tally->crossings += after.crossings - before.crossings;
	if (after.executed - before.executed != run.calls)
		measure_fail("%s by %s, N = %u: %u calls made, %lu executed", subject_name(subject),
			     mechanism_name(mechanism), n, run.calls,
			     (unsigned long)(after.executed - before.executed));
	if (mechanism != BATCH_PLAIN && after.crossings - before.crossings != run.calls / n)
		measure_fail("%s by %s, N = %u: %u batches, %lu crossings", subject_name(subject),
			     mechanism_name(mechanism), n, run.calls / n,
			     (unsigned long)(after.crossings - before.crossings));
	return clean;
}

/* io_uring lacks getpid and getppid: its NOP stands beside them, under a name that says so. */
static const char *label(enum mechanism mechanism, enum subject subject)
{
	bool lacks = subject == GETPID || subject == GETPPID;

	if (mechanism == URING && lacks)
		return "io_uring-nop";
	if (mechanism == URING_SQPOLL && lacks)
		return "io_uring-nop-sqpoll";
	return mechanism_name(mechanism);
}

static void print_row(const struct options *options, enum mechanism mechanism,
		      enum subject subject, unsigned int n, unsigned int calls,
		      unsigned int repeat, unsigned int ticks, uint64_t value)
{
	printf("{\"mechanism\": \"%s\", \"call\": \"%s\", \"n\": %u, \"kind\": \"%s\", "
	       "\"value\": %lu, \"unit\": \"%s\", \"ops\": %u, \"repeat\": %u, \"ticks\": %u}\n",
	       label(mechanism, subject), subject_name(subject), n,
	       options->kind == MEASURE_COUNTED ? "counted" : "measured", value,
	       measure_unit(options->kind), calls, repeat, ticks);
}

/*
 * Counted: one mechanism after the other. A first run warms up (page tables, page-cache marks,
 * caches of the kernel's allocators) and shows whether the calls fit between two timer ticks. Then
 * each repeat is one run without a tick.
 */
static void count_one(const struct options *options, struct bench *bench,
		      enum mechanism mechanism, enum subject subject, unsigned int n)
{
	unsigned int calls = calls_of(mechanism, subject, n);
	uint64_t value;

	run_checked(options, bench, mechanism, subject, n, calls, &value);
	while (value > TICK_SHARE && calls > n) {
		calls = calls / 2 / n ? calls / 2 / n * n : n;
		value /= 2;
	}
	for (unsigned int repeat = 0; repeat < options->repeats; repeat++) {
		unsigned int ticks = 0;

		while (!run_checked(options, bench, mechanism, subject, n, calls, &value)) {
			if (++ticks == TICK_RETRIES)
				measure_fail("%s by %s, N = %u: a timer tick in each of %u runs",
					     subject_name(subject), mechanism_name(mechanism), n,
					     ticks);
			measure_await_tick();
		}
		print_row(options, mechanism, subject, n, calls, repeat, ticks, value);
	}
}

/* The same run once more with a group of events counted, in a row of its own. */
static void count_events(struct bench *bench, enum mechanism mechanism, enum subject subject,
			 unsigned int n, unsigned int calls, unsigned int repeat)
{
	unsigned int group = repeat % events_groups();
	struct run run = { .bench = bench, .n = n, .calls = calls };

	fixture_clear(bench->fixture, subject);
	if (!events_count(group, bench_runner(mechanism, subject), &run))
		return;
	if (run.bad)
		measure_fail("%s by %s, N = %u, events counted: a wrong result",
			     subject_name(subject), mechanism_name(mechanism), n);
	printf("{\"mechanism\": \"%s\", \"call\": \"%s\", \"n\": %u, \"kind\": \"events\", "
	       "\"ops\": %u, \"repeat\": %u, ", label(mechanism, subject), subject_name(subject),
	       n, calls, repeat);
	events_print(group);
	printf("}\n");
}

/*
 * Measured: in each round every mechanism once, in a seeded random order; an unmeasured run just
 * before wakes what sleeps (SQPOLL's thread) and fills caches alike for all.
 */
static void measure_round(const struct options *options, struct bench *bench,
			  unsigned int *mechanisms, unsigned int count, enum subject subject,
			  unsigned int n, unsigned int repeat)
{
	uint64_t value;

	measure_shuffle(mechanisms, count);
	for (unsigned int i = 0; i < count; i++) {
		enum mechanism mechanism = (enum mechanism)mechanisms[i];
		unsigned int calls = calls_of(mechanism, subject, n);

		run_checked(options, bench, mechanism, subject, n, calls, &value);
		run_checked(options, bench, mechanism, subject, n, calls, &value);
		print_row(options, mechanism, subject, n, calls, repeat, 0, value);
		if (events_groups())
			count_events(bench, mechanism, subject, n, calls, repeat);
	}
}

static void run_subject(const struct options *options, struct bench *bench, enum subject subject)
{
	unsigned int mechanisms[MECHANISMS], count = 0;

	for (unsigned int m = 0; m < MECHANISMS; m++)
		if (bench->open[m] && bench_runner((enum mechanism)m, subject) &&
		    (m != URING_SQPOLL ||
		     measure_list_has(options->polled, subject_name(subject))))
			mechanisms[count++] = m;
	for (unsigned int s = 0; s < options->size_count; s++) {
		unsigned int n = options->sizes[s];

		if (options->kind == MEASURE_COUNTED) {
			for (unsigned int i = 0; i < count; i++)
				count_one(options, bench, (enum mechanism)mechanisms[i], subject,
					  n);
			continue;
		}
		for (unsigned int repeat = 0; repeat < options->repeats; repeat++)
			measure_round(options, bench, mechanisms, count, subject, n, repeat);
	}
}

static void print_checks(const struct bench *bench)
{
	for (unsigned int m = 0; m < MECHANISMS; m++) {
		if (!bench->open[m])
			printf("{\"skipped\": \"%s\", \"reason\": \"%s\"}\n",
			       mechanism_name((enum mechanism)m), bench->reason[m]);
		for (unsigned int s = 0; s < SUBJECTS; s++) {
			const struct tally *tally = &tallies[m][s];

			if (!tally->made)
				continue;
			printf("{\"check\": \"%s.%s\", \"made\": %lu, \"executed\": %lu, "
			       "\"batches\": %lu, \"crossings\": %lu}\n",
			       subject_name((enum subject)s),
			       label((enum mechanism)m, (enum subject)s), tally->made,
			       tally->executed, tally->batches, tally->crossings);
		}
	}
}

int main(int argc, char **argv)
{
	const char *disk = NULL;
	bool counters = false;
	struct options options = parse(argc, argv, &disk, &counters);
	struct bench bench = { 0 };
	struct statfs filesystem;
	unsigned int done = 0, total = 0;

	measure_pin(0);
	measure_seed(options.seed);
	measure_calibrate(options.kind);
	if (counters)
		events_open();
	bench.fixture = fixture_create(options.directory, disk);
	bench_open(&bench, options.mechanisms);
	if (statfs(options.directory, &filesystem))
		measure_fail("statfs %s", options.directory);
	printf("{\"filesystem\": \"0x%lx\"}\n", (unsigned long)filesystem.f_type);
	for (unsigned int s = 0; s < SUBJECTS; s++)
		total += measure_list_has(options.calls, subject_name((enum subject)s));
	if (!total)
		measure_fail("--calls: none of '%s' is known", options.calls);
	for (unsigned int s = 0; s < SUBJECTS; s++) {
		if (!measure_list_has(options.calls, subject_name((enum subject)s)))
			continue;
		run_subject(&options, &bench, (enum subject)s);
		measure_progress(++done, total);
	}
	print_checks(&bench);
	bench_close(&bench);
	printf("{\"complete\": true}\n");
	return 0;
}
