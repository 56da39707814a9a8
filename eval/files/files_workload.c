// SPDX-License-Identifier: GPL-2.0-only
/*
 * The workload of experiment files: the same work on files by each way of having it done, one row
 * of JSON a measurement. It owns the order of things, the counters and the checks; file_ways.c owns
 * the ways, file_jobs.c what is done.
 *
 * Counted: instructions of the machine's only CPU, of all threads and the kernel, timer ticks
 * included (about one in four million instructions); crossings in rounds of their own. Measured:
 * CPU time of all threads of this process, and of its threads in the kernel.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../tools/crossings/dispatch_probe.h"
#include "file_jobs.h"
#include "measure.h"
#include "options.h"
#include "file_ways.h"

#define FILES_MAX 100000u
#define TASKS_MAX 1024u

enum task { STATS, READS, WRITES, WALK, TASKS };

static const char *const task_names[TASKS] = { "stat", "read", "write", "walk" };

struct plan {
	struct options options;
	unsigned int files, tasks;
	int probe;		/* counts crossings; -1: instructions or time are counted */
	bool open[WAYS];
	struct tree tree;
};

static struct plan parse(int argc, char **argv)
{
	static const struct option long_options[] = {
		OPTIONS_SHARED, { "files", required_argument, NULL, 'f' }, { NULL, 0, NULL, 0 },
	};
	struct plan plan = {
		.options = {
			.kind = MEASURE_MEASURED, .calls = "stat,read,write,walk",
			.mechanisms = "plain,pool,pool-calls,uring,files,files-plain",
			.directory = "/tmp", .repeats = 3, .seed = 1, .sizes = { 64 },
			.size_count = 1,
		},
		.files = 256, .probe = -1,
	};
	int letter;

	while ((letter = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
		if (letter == 'f')
			plan.files = (unsigned int)measure_parse_number("--files", optarg,
									FILES_MAX);
		else if (!options_take(&plan.options, letter, optarg, TASKS_MAX))
			measure_fail("usage: files " OPTIONS_SHARED_USAGE " [--files N]");
	}
	plan.tasks = plan.options.sizes[0];
	return plan;
}

/* Has one kind of work done. Returns the number of things that were asked for; 0: it cannot. */
static unsigned int run(struct plan *plan, enum way way, enum task task)
{
	static const enum work works[TASKS] = { [STATS] = STAT, [READS] = READ, [WRITES] = WRITE };
	struct tree *tree = &plan->tree;
	unsigned int entries;

	if (task != WALK) {
		struct job *jobs = task == WRITES ? tree->targets : tree->files;

		jobs->work = works[task];
		return way_run(way, jobs, tree->count) ? tree->count : 0;
	}
	if (!way_run(way, tree->top, 1) || !way_run(way, tree->names, tree->folders))
		return 0;
	entries = tree_entries(tree);
	return way_run(way, tree->entries, entries) ? 1 + tree->folders + entries : 0;
}

static void reset(struct plan *plan, enum task task)
{
	struct tree *tree = &plan->tree;

	jobs_reset(tree->files, tree->count, task == READS ? READ : STAT);
	jobs_reset(tree->targets, tree->count, WRITE);
	jobs_reset(tree->top, 1, LIST);
	jobs_reset(tree->names, tree->folders, LIST);
	jobs_reset(tree->entries, tree->count, STAT);
}

static void check(const struct plan *plan, enum way way, enum task task, unsigned int asked)
{
	const struct tree *tree = &plan->tree;

	if (task == WALK) {
		if (asked != 1 + tree->folders + tree->count)
			measure_fail("a walk by %s found %u", way_name(way), asked);
		jobs_check(tree->top, 1, way_name(way));
		jobs_check(tree->names, tree->folders, way_name(way));
		jobs_check(tree->entries, tree->count, way_name(way));
		return;
	}
	jobs_check(task == WRITES ? tree->targets : tree->files, tree->count, way_name(way));
}

static uint64_t counter(const struct plan *plan)
{
	struct timespec now;
	uint64_t count;

	if (plan->probe >= 0) {
		if (read(plan->probe, &count, sizeof(count)) != sizeof(count))
			measure_fail("cannot read the count of crossings: %s", strerror(errno));
		return count;
	}
	if (plan->options.kind == MEASURE_COUNTED)
		return measure_counter();
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void run_once(struct plan *plan, enum way way, enum task task, int repeat)
{
	bool counted = plan->options.kind == MEASURE_COUNTED;
	unsigned int asked;
	uint64_t begin, end;

	reset(plan, task);
	begin = counter(plan);
	asked = run(plan, way, task);
	end = counter(plan);
	if (!asked)
		return;
	check(plan, way, task, asked);
	if (repeat < 0)	/* it was to warm up */
		return;
	printf("{\"kind\": \"%s\", \"call\": \"%s\", \"mechanism\": \"%s\", \"unit\": \"%s\", "
	       "\"value\": %lu, \"ops\": %u, \"n\": %u, \"repeat\": %d}\n",
	       counted ? "counted" : "measured", task_names[task], way_name(way),
	       plan->probe >= 0 ? "crossings" : counted ? "instructions" : "cpu-ns",
	       (unsigned long)(end - begin), asked, plan->tasks, repeat);
}

/* Rounds in which each way does each work, by turns. */
static void run_rounds(struct plan *plan)
{
	const struct options *options = &plan->options;
	unsigned int order[WAYS], count = 0;

	for (unsigned int way = 0; way < WAYS; way++)
		if (plan->open[way])
			order[count++] = way;
	for (int repeat = -1; repeat < (int)options->repeats; repeat++) {
		for (unsigned int task = 0; task < TASKS; task++) {
			if (!measure_list_has(options->calls, task_names[task]))
				continue;
			if (options->kind == MEASURE_MEASURED)
				measure_shuffle(order, count);
			for (unsigned int i = 0; i < count; i++)
				run_once(plan, (enum way)order[i], (enum task)task, repeat);
		}
		measure_progress((unsigned int)(repeat + 2), options->repeats + 1);
	}
}

static void open_ways(struct plan *plan)
{
	for (unsigned int way = 0; way < WAYS; way++) {
		const char *why;

		if (!measure_list_has(plan->options.mechanisms, way_name((enum way)way)))
			continue;
		why = way_open((enum way)way, plan->tasks);
		plan->open[way] = !why;
		if (why && plan->probe < 0)
			printf("{\"skipped\": \"%s\", \"reason\": \"%s\"}\n",
			       way_name((enum way)way), why);
	}
}

static void close_ways(struct plan *plan)
{
	for (unsigned int way = 0; way < WAYS; way++)
		if (plan->open[way])
			way_close((enum way)way);
}

int main(int argc, char **argv)
{
	struct plan plan = parse(argc, argv);

	measure_seed(plan.options.seed);
	measure_calibrate(plan.options.kind);
	tree_make(&plan.tree, plan.options.directory, plan.files);
	open_ways(&plan);
	run_rounds(&plan);
	close_ways(&plan);
	if (plan.options.kind == MEASURE_COUNTED) {
		/* Threads inherit the probe, so they have to start anew. */
		plan.probe = probe_attach(0);
		plan.options.repeats = 1;
		open_ways(&plan);
		run_rounds(&plan);
		close_ways(&plan);
		close(plan.probe);
	}
	tree_remove(&plan.tree, plan.options.directory);
	printf("{\"complete\": true}\n");
	return 0;
}
