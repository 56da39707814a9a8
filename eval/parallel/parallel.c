// SPDX-License-Identifier: GPL-2.0-only
/*
 * The workload of experiment parallel: 127 requests, K a notify, by every mechanism and for several
 * numbers of workers, one row of JSON a measurement; or, with a slow device, the reads of that. It
 * owns the order of things and the checks; spec.py decides what to run and makes figures of the
 * rows.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "measure.h"
#include "options.h"
#include "requests.h"
#include "slow_read.h"

#define TICK_RETRIES 20
#define SETTLE_US 2000		/* a counted run begins with every worker asleep */
#define SPIN_US 200		/* how long an idle worker watches for requests, measured runs */
#define SLOW_WORKERS 4		/* workers for the slow reads */
#define WORKER_CPU 1		/* measured runs: requester on CPU 0, workers on CPU 1 */

/* Beside the options that all workloads share. */
struct plan {
	struct options options;
	const char *device;		/* block device for slow reads, or NULL */
	unsigned int workers[MEASURE_LIST_MAX], worker_count;
	unsigned int slow_repeats, done;
};

struct tally {
	uint64_t made, executed, crossings;
};

static struct plan parse(int argc, char **argv)
{
	static const struct option long_options[] = {
		OPTIONS_SHARED, { "workers", required_argument, NULL, 'w' },
		{ "slow-device", required_argument, NULL, 'b' },
		{ "slow-repeats", required_argument, NULL, 'q' }, { NULL, 0, NULL, 0 },
	};
	struct plan plan = {
		.options = {
			.kind = MEASURE_MEASURED, .calls = "gettid,read1_disk",
			.mechanisms = "plain,batch,psc,psc-plain,io_uring,io_uring-sqpoll",
			.directory = "/dev/shm", .polled = "gettid,read1_disk", .repeats = 5,
			.seed = 1, .sizes = { 16 }, .size_count = 1,
		},
		.workers = { 1 }, .worker_count = 1, .slow_repeats = 3,
	};
	int letter;

	while ((letter = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
		if (letter == 'b')
			plan.device = optarg;
		else if (letter == 'w')
			plan.worker_count = measure_parse_numbers(optarg, plan.workers,
								  WORKERS_MAX);
		else if (letter == 'q')
			plan.slow_repeats = (unsigned int)measure_parse_number(
				"--slow-repeats", optarg, OPTIONS_REPEATS_MAX);
		else if (!options_take(&plan.options, letter, optarg, REQUESTS))
			measure_fail("usage: parallel " OPTIONS_SHARED_USAGE " [--workers LIST] "
				     "[--slow-device PATH] [--slow-repeats N]");
	}
	return plan;
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
	if (run->wrong)
		measure_fail("%s by %s, %u workers, K = %u: wrong: %s (%ld)", subject_name(subject),
			     mechanism_name(mechanism), run->crew, run->k, run->wrong,
			     run->wrong_value);
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
		if (desk->open[m] && (m != URING_SQPOLL ||
				      measure_list_has(options->polled, subject_name(subject))))
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
static void run_workers(struct plan *plan, unsigned int index)
{
	struct tally tallies[MECHANISMS][SUBJECTS] = { 0 };
	const struct options *options = &plan->options;
	unsigned int subjects = 0;
	bool counted = options->kind == MEASURE_COUNTED;
	struct desk_config config = {
		.wanted = options->mechanisms, .only_workers = index > 0,
		.directory = options->directory, .workers = plan->workers[index],
		.spin_us = counted ? 0 : SPIN_US, .worker_cpu = counted ? -1 : WORKER_CPU,
		.idle_workers = counted,
	};
	static struct desk desk;

	memset(&desk, 0, sizeof(desk));
	desk_open(&desk, &config);
	for (unsigned int s = 0; s < SUBJECTS; s++)
		subjects += measure_list_has(options->calls, subject_name((enum subject)s));
	for (unsigned int s = 0; s < SUBJECTS; s++) {
		if (!measure_list_has(options->calls, subject_name((enum subject)s)))
			continue;
		run_subject(options, &desk, (enum subject)s, tallies);
		measure_progress(++plan->done, plan->worker_count * subjects);
	}
	print_checks(&desk, config.workers, tallies);
	desk_close(&desk);
}

int main(int argc, char **argv)
{
	struct plan plan = parse(argc, argv);

	measure_pin(0);
	measure_seed(plan.options.seed);
	measure_calibrate(plan.options.kind);
	for (unsigned int w = 0; !plan.device && w < plan.worker_count; w++)
		run_workers(&plan, w);
	if (plan.device)
		slow_read(plan.device, SLOW_WORKERS, plan.slow_repeats);
	printf("{\"complete\": true}\n");
	return 0;
}
