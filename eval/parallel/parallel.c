// SPDX-License-Identifier: GPL-2.0-only
/*
 * parallel.c - the workload of experiment parallel: 127 requests, K a notify, by every mechanism
 * and for several numbers of workers, one row of JSON a measurement; then the slow reads. It owns
 * the order of things and the checks; spec.py decides what to run and makes figures of the rows.
 */
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "measure.h"
#include "requests.h"
#include "slow_read.h"

#define REPEATS_MAX 1000
#define TICK_RETRIES 20
#define SETTLE_US 2000		/* a counted run begins with every worker asleep */
#define WORKER_CPU 1		/* measured runs: requester on CPU 0, workers on CPU 1 */

struct options {
	enum measure_kind kind;
	const char *calls, *mechanisms, *directory, *device;
	unsigned int sizes[MEASURE_LIST_MAX], size_count;
	unsigned int workers[MEASURE_LIST_MAX], worker_count;
	unsigned int repeats, slow_repeats, done;
	uint64_t seed;
};

struct tally {
	uint64_t made, executed, crossings;
};

static const struct option long_options[] = {
	{ "kind", required_argument, NULL, 'k' }, { "calls", required_argument, NULL, 'c' },
	{ "mechanisms", required_argument, NULL, 'm' }, { "sizes", required_argument, NULL, 'n' },
	{ "workers", required_argument, NULL, 'w' }, { "repeats", required_argument, NULL, 'r' },
	{ "seed", required_argument, NULL, 's' }, { "directory", required_argument, NULL, 'd' },
	{ "slow-device", required_argument, NULL, 'b' },
	{ "slow-repeats", required_argument, NULL, 'q' }, { NULL, 0, NULL, 0 },
};

static struct options parse(int argc, char **argv)
{
	struct options options = {
		.kind = MEASURE_MEASURED, .calls = "gettid,read1_disk", .directory = "/dev/shm",
		.mechanisms = "plain,batch,psc,psc-plain,io_uring,io_uring-sqpoll",
		.sizes = { 16 }, .size_count = 1, .workers = { 1 }, .worker_count = 1,
		.repeats = 5, .slow_repeats = 3, .seed = 1,
	};
	int option;

	while ((option = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
		switch (option) {
		case 'k': options.kind = measure_parse_kind(optarg); break;
		case 'c': options.calls = optarg; break;
		case 'm': options.mechanisms = optarg; break;
		case 'd': options.directory = optarg; break;
		case 'b': options.device = optarg; break;
		case 'n':
			options.size_count = measure_parse_numbers(optarg, options.sizes, REQUESTS);
			break;
		case 'w':
			options.worker_count = measure_parse_numbers(optarg, options.workers,
								     WORKERS_MAX);
			break;
		case 'r':
			options.repeats = (unsigned int)measure_parse_number("--repeats", optarg,
									     REPEATS_MAX);
			break;
		case 'q':
			options.slow_repeats = (unsigned int)measure_parse_number(
				"--slow-repeats", optarg, REPEATS_MAX);
			break;
		case 's': options.seed = measure_parse_number("--seed", optarg, UINT32_MAX); break;
		default: measure_fail("usage: parallel [--kind counted|measured] [--calls LIST] "
				      "[--mechanisms LIST] [--sizes LIST] [--workers LIST] "
				      "[--repeats N] [--seed N] [--directory DIR] "
				      "[--slow-device PATH] [--slow-repeats N]");
		}
	}
	return options;
}

static bool run_checked(const struct options *options, struct desk *desk, enum mechanism mechanism,
			enum subject subject, struct run *run, struct tally *tally, uint64_t *value)
{
	struct tl_stats before, after;
	bool counts, clean;

	desk_clear(desk);
	if (options->kind == MEASURE_COUNTED)
		usleep(SETTLE_US);
	counts = desk_stats(desk, mechanism, &before);
	clean = measure_once(options->kind, desk_runner(mechanism, subject), run, value);
	if (run->bad)
		measure_fail("%s by %s, K = %u: a request failed or returned a wrong result",
			     subject_name(subject), mechanism_name(mechanism), run->k);
	if (subject == READ1)
		desk_check(desk, mechanism, run->k);
	tally->made += REQUESTS;
	if (!counts)
		return clean;
	desk_stats(desk, mechanism, &after);
	run->crossings = (unsigned int)(after.crossings - before.crossings);
	tally->executed += after.executed - before.executed;
	tally->crossings += run->crossings;
	if (after.executed - before.executed != REQUESTS)
		measure_fail("%s by %s, K = %u: %u requests made, %lu executed",
			     subject_name(subject), mechanism_name(mechanism), run->k, REQUESTS,
			     (unsigned long)(after.executed - before.executed));
	return clean;
}

/* io_uring lacks gettid: its NOP stands beside it, under a name that says so. */
static const char *label(enum mechanism mechanism, enum subject subject)
{
	if (mechanism == URING && subject == GETTID)
		return "io_uring-nop";
	if (mechanism == URING_SQPOLL && subject == GETTID)
		return "io_uring-nop-sqpoll";
	return mechanism_name(mechanism);
}

static void print_rows(const struct options *options, enum mechanism mechanism,
		       enum subject subject, const struct run *run, unsigned int workers,
		       unsigned int repeat, uint64_t total)
{
	const char *phases[] = { "total", "submit" };
	uint64_t values[] = { total, run->submitted - run->began };

	for (unsigned int i = 0; i < 2; i++)
		printf("{\"mechanism\": \"%s\", \"call\": \"%s\", \"n\": %u, \"workers\": %u, "
		       "\"crew\": %u, \"phase\": \"%s\", \"kind\": \"%s\", \"value\": %lu, "
		       "\"unit\": \"%s\", \"ops\": %u, \"crossings\": %u, \"repeat\": %u}\n",
		       label(mechanism, subject), subject_name(subject), run->k, workers,
		       run->crew, phases[i],
		       options->kind == MEASURE_COUNTED ? "counted" : "measured", values[i],
		       measure_unit(options->kind), REQUESTS, run->crossings, repeat);
}

static struct run new_run(const struct options *options, struct desk *desk, unsigned int k)
{
	return (struct run){ .desk = desk, .k = k, .crew = desk->workers,
			     .may_spin = options->kind == MEASURE_MEASURED };
}

static void run_one(const struct options *options, struct desk *desk, enum mechanism mechanism,
		    enum subject subject, unsigned int k, unsigned int repeat, struct tally *tally)
{
	struct run run = new_run(options, desk, k);
	unsigned int workers = mechanism == PSC ? desk->crew.workers :
			       mechanism == PSC_PLAIN ? desk->crew_plain.workers : 0;
	uint64_t value;

	/* Measured: wake what sleeps. Counted: once, before the first repeat, to warm up. */
	if (options->kind == MEASURE_MEASURED || !repeat)
		run_checked(options, desk, mechanism, subject, &run, tally, &value);
	for (unsigned int ticks = 0; ; ticks++) {
		run = new_run(options, desk, k);
		if (run_checked(options, desk, mechanism, subject, &run, tally, &value))
			break;
		if (ticks == TICK_RETRIES)
			measure_fail("%s by %s, K = %u: a timer tick in each of %u runs",
				     subject_name(subject), mechanism_name(mechanism), k, ticks);
		measure_await_tick();
	}
	print_rows(options, mechanism, subject, &run, workers, repeat, value);
}

static void run_subject(const struct options *options, struct desk *desk, enum subject subject,
			struct tally (*tallies)[SUBJECTS])
{
	unsigned int mechanisms[MECHANISMS], count = 0;

	for (unsigned int m = 0; m < MECHANISMS; m++)
		if (desk->open[m])
			mechanisms[count++] = m;
	for (unsigned int s = 0; s < options->size_count; s++) {
		for (unsigned int repeat = 0; repeat < options->repeats; repeat++) {
			if (options->kind == MEASURE_MEASURED)
				measure_shuffle(mechanisms, count);
			for (unsigned int i = 0; i < count; i++)
				run_one(options, desk, (enum mechanism)mechanisms[i], subject,
					options->sizes[s], repeat,
					&tallies[mechanisms[i]][subject]);
		}
	}
}

static void print_checks(const struct desk *desk, unsigned int workers,
			 struct tally (*tallies)[SUBJECTS])
{
	for (unsigned int m = 0; m < MECHANISMS; m++) {
		if (!desk->open[m])
			printf("{\"skipped\": \"%s\", \"workers\": %u, \"reason\": \"%s\"}\n",
			       mechanism_name((enum mechanism)m), workers, desk->reason[m]);
		for (unsigned int s = 0; s < SUBJECTS; s++)
			if (tallies[m][s].made)
				printf("{\"check\": \"%s.%s\", \"workers\": %u, \"made\": %lu, "
				       "\"executed\": %lu, \"crossings\": %lu}\n",
				       subject_name((enum subject)s),
				       label((enum mechanism)m, (enum subject)s), workers,
				       tallies[m][s].made, tallies[m][s].executed,
				       tallies[m][s].crossings);
	}
	for (unsigned int w = 0; desk->open[PSC] && w < desk->crew.workers; w++)
		printf("{\"served\": %lu, \"worker\": %u, \"workers\": %u}\n",
		       desk->crew.served[w], w, workers);
}

/* All mechanisms with the first number of workers; for the others only what workers change. */
static void run_workers(struct options *options, unsigned int index)
{
	struct tally tallies[MECHANISMS][SUBJECTS] = { 0 };
	bool counted = options->kind == MEASURE_COUNTED;
	struct desk_config config = {
		.wanted = options->mechanisms, .only_workers = index > 0,
		.directory = options->directory, .workers = options->workers[index],
		.spin_us = counted ? 0 : TL_SPIN_US_MAX, .worker_cpu = counted ? -1 : WORKER_CPU,
		.idle_workers = counted,
	};
	static struct desk desk;

	memset(&desk, 0, sizeof(desk));
	desk_open(&desk, &config);
	for (unsigned int s = 0; s < SUBJECTS; s++) {
		if (!measure_list_has(options->calls, subject_name((enum subject)s)))
			continue;
		run_subject(options, &desk, (enum subject)s, tallies);
		measure_progress(++options->done, options->worker_count * SUBJECTS);
	}
	print_checks(&desk, config.workers, tallies);
	desk_close(&desk);
}

int main(int argc, char **argv)
{
	struct options options = parse(argc, argv);

	measure_pin(0);
	measure_seed(options.seed);
	measure_calibrate(options.kind);
	for (unsigned int w = 0; w < options.worker_count; w++)
		run_workers(&options, w);
	if (options.device)
		slow_read(options.device, 4, options.slow_repeats);
	printf("{\"complete\": true}\n");
	return 0;
}
