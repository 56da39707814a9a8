// SPDX-License-Identifier: GPL-2.0-only
/*
 * Runs commands again and again in one boot, with the module's probes set differently from run to
 * run, and says what each run took. Runs in the lab's guest.
 *
 * Counted: all instructions of the guest from a command's start to its end (worked.c). Measured:
 * time, and each run is announced to an observer, who reads or not. It owns the order of runs;
 * hits.c counts what hits the probes.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "announce.h"
#include "workload_clock.h"
#include "hits.h"
#include "measure.h"
#include "worked.h"

#define PROBES "/sys/module/trapless/parameters/probes"
#define PROBES_COUNTS 4u	/* as in kmod/probe/layout.h */
#define REPEATS_MAX 1000u
#define LOADS_MAX 16u
#define LIMIT_S_MAX 86400u
#define PAUSE_MS_MAX 60000u
#define SAID_BYTES 300		/* of a failed command's output */

static const struct setting {
	const char *name;
	unsigned int probes;
	bool reads;		/* an observer does */
} settings[] = {
	{ "none", 0, false },
	{ "modes", 1, false },
	{ "both", 3, false },
	{ "counts", 7, false },
	{ "reads", 3, true },
};

#define SETTINGS (sizeof(settings) / sizeof(settings[0]))

struct options {
	const char *settings;
	enum measure_kind kind;
	unsigned int repeats, limit_s, settle_ms;
	char **loads;		/* a name and a command of the shell, and so on */
	unsigned int load_count;
};

struct load {
	const char *name, *command;
};

static const char *output_name(void)
{
	const char *folder = getenv("TMPDIR");
	static char name[256];

	snprintf(name, sizeof(name), "%s/peek-overhead.output", folder ? folder : "/tmp");
	return name;
}

/* Also proves that the module did what it was asked: the parameter shows what is on. */
static void set_probes(unsigned int probes)
{
	char text[16] = "";
	FILE *file = fopen(PROBES, "r+e");

	if (!file || fprintf(file, "%u", probes) < 0 || fflush(file))
		measure_fail("%s cannot be set to %u: %s", PROBES, probes, strerror(errno));
	rewind(file);
	if (!fgets(text, sizeof(text), file) || strtoul(text, NULL, 10) != probes)
		measure_fail("%s was set to %u and is %s", PROBES, probes, text);
	fclose(file);
}

static void __attribute__((noreturn)) become(const char *command)
{
	int in = open("/dev/null", O_RDONLY);
	int out = open(output_name(), O_WRONLY | O_CREAT | O_TRUNC, 0600);

	if (in < 0 || out < 0 || dup2(in, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 ||
	    dup2(out, STDERR_FILENO) < 0)
		_exit(126);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	execl("/bin/sh", "sh", "-c", command, (char *)NULL);
	_exit(127);
}

static void check_status(const struct load *load, int status)
{
	char said[SAID_BYTES + 1] = "";
	FILE *file;

	if (WIFEXITED(status) && !WEXITSTATUS(status))
		return;
	file = fopen(output_name(), "re");
	if (file && !fread(said, 1, SAID_BYTES, file))
		said[0] = '\0';
	measure_fail("%s ended with wait status %#x; it said: %s", load->name,
		     (unsigned int)status, said);
}

/* The command from its start to its end. */
static void run_command(const struct load *load)
{
	pid_t pid = fork();
	int status;

	if (pid < 0)
		measure_fail("cannot fork: %s", strerror(errno));
	if (!pid)
		become(load->command);
	if (waitpid(pid, &status, 0) != pid)
		measure_fail("cannot wait for %s: %s", load->name, strerror(errno));
	check_status(load, status);
}

static void count(const struct load *load, const struct setting *setting, unsigned int repeat)
{
	const bool hits = setting->probes & PROBES_COUNTS;
	uint64_t begin, worked, hit = 0;

	if (hits)
		hit = hits_made();
	measure_await_tick();	/* all runs have as many ticks */
	begin = worked_instructions();
	run_command(load);
	worked = worked_instructions() - begin;
	printf("{\"load\": \"%s\", \"setting\": \"%s\", \"repeat\": %u, \"unit\": "
	       "\"instructions\", \"value\": %" PRIu64, load->name, setting->name, repeat, worked);
	if (hits)
		printf(", \"hits\": %" PRIu64, hits_made() - hit);
	printf("}\n");
}

static void measure(const struct load *load, const struct setting *setting,
		    struct announcement *announcement, unsigned int settle_ms,
		    unsigned int repeat)
{
	uint64_t begin, ns;

	announce_next(announcement, setting->reads);
	if (setting->reads)
		announce_await();	/* the sampler is at work */
	sleep_ms(settle_ms);
	announce_next(announcement, setting->reads);
	begin = now_ns();
	run_command(load);
	ns = now_ns() - begin;
	printf("{\"load\": \"%s\", \"setting\": \"%s\", \"repeat\": %u, \"unit\": \"ns\", "
	       "\"value\": %" PRIu64 ", \"phase\": %" PRIu64 "}\n", load->name, setting->name,
	       repeat, ns, announcement->phase);
}

static struct announcement *announced(void)
{
	uint8_t *page = mmap(NULL, ANNOUNCE_PAGE, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (page == MAP_FAILED || mlock(page, ANNOUNCE_PAGE))
		measure_fail("a page cannot be pinned: %s", strerror(errno));
	memset(page, 0, ANNOUNCE_PAGE);
	announce_begin((void *)page, announce_physical(page), announce_physical(page));
	announce_await();	/* found */
	return (void *)page;
}

/* The settings that are wanted, in random order; how many. */
static unsigned int shuffled(const struct options *options, unsigned int order[SETTINGS])
{
	unsigned int wanted = 0;

	for (unsigned int i = 0; i < SETTINGS; i++)
		if (measure_list_has(options->settings, settings[i].name))
			order[wanted++] = i;
	measure_shuffle(order, wanted);
	return wanted;
}

/* Time drifts: each load has its settings one after the other. */
static void measure_round(const struct options *options, const struct load *loads,
			  struct announcement *announcement, unsigned int repeat)
{
	for (unsigned int i = 0; i < options->load_count; i++) {
		unsigned int order[SETTINGS], wanted = shuffled(options, order);

		for (unsigned int at = 0; at < wanted; at++) {
			set_probes(settings[order[at]].probes);
			measure(&loads[i], &settings[order[at]], announcement, options->settle_ms,
				repeat);
		}
		measure_progress(repeat * options->load_count + i + 1,
				 options->repeats * options->load_count);
	}
}

/*
 * Instructions do not drift, and a change of the kernel's code makes the emulator translate it
 * anew, which takes longer than most loads: each setting has all loads.
 */
static void count_round(const struct options *options, const struct load *loads,
			unsigned int repeat)
{
	unsigned int order[SETTINGS], wanted = shuffled(options, order);

	for (unsigned int at = 0; at < wanted; at++) {
		set_probes(settings[order[at]].probes);
		for (unsigned int i = 0; i < options->load_count; i++)
			count(&loads[i], &settings[order[at]], repeat);
		measure_progress(repeat * wanted + at + 1, options->repeats * wanted);
	}
}

static void run_all(const struct options *options)
{
	const bool counted = options->kind == MEASURE_COUNTED;
	struct announcement *announcement = counted ? NULL : announced();
	struct load loads[LOADS_MAX];

	/* The first run warms: files are in memory, free pages are those of the run before. */
	for (unsigned int i = 0; i < options->load_count; i++) {
		loads[i] = (struct load){ options->loads[2 * i], options->loads[2 * i + 1] };
		run_command(&loads[i]);
	}
	for (unsigned int repeat = 0; repeat < options->repeats; repeat++) {
		if (counted)
			count_round(options, loads, repeat);
		else
			measure_round(options, loads, announcement, repeat);
	}
	set_probes(0);
	if (announcement)
		announce_next(announcement, ANNOUNCE_OVER);
	printf("{\"check\": \"each command did its work in every run, and the probes were what was "
	       "asked for\", \"made\": %u}\n", options->repeats * options->load_count);
}

static void __attribute__((noreturn)) usage(void)
{
	measure_fail("usage: peek-overhead --settings LIST [--kind counted|measured] [--repeats N] "
		     "[--limit S] [--settle-ms N] -- NAME COMMAND [NAME COMMAND]...");
}

static struct options parse(int argc, char **argv)
{
	enum { SETTING_LIST = 256, KIND, REPEATS, LIMIT, SETTLE };
	static const struct option longs[] = {
		{ "settings", required_argument, NULL, SETTING_LIST },
		{ "kind", required_argument, NULL, KIND },
		{ "repeats", required_argument, NULL, REPEATS },
		{ "limit", required_argument, NULL, LIMIT },
		{ "settle-ms", required_argument, NULL, SETTLE },
		{ 0 },
	};
	struct options options = { .kind = MEASURE_MEASURED, .repeats = 1, .limit_s = 600 };
	unsigned int *const numbers[] = { &options.repeats, &options.limit_s, &options.settle_ms };
	static const uint64_t limits[] = { REPEATS_MAX, LIMIT_S_MAX, PAUSE_MS_MAX };
	int option, index;

	while ((option = getopt_long(argc, argv, "+", longs, &index)) != -1) {
		if (option == SETTING_LIST)
			options.settings = optarg;
		else if (option == KIND)
			options.kind = measure_parse_kind(optarg);
		else if (option >= REPEATS && option <= SETTLE)
			*numbers[option - REPEATS] = (unsigned int)measure_parse_number(
				longs[index].name, optarg, limits[option - REPEATS]);
		else
			usage();
	}
	options.loads = argv + optind;
	options.load_count = (unsigned int)(argc - optind) / 2;
	if (!options.settings || !options.load_count || (argc - optind) % 2 ||
	    options.load_count > LOADS_MAX)
		usage();
	return options;
}

int main(int argc, char **argv)
{
	struct options options = parse(argc, argv);

	measure_limit(options.limit_s);
	measure_seed(5);
	if (options.kind == MEASURE_COUNTED) {
		measure_calibrate(MEASURE_COUNTED);
		worked_check();
	}
	run_all(&options);
	return 0;
}
