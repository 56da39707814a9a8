// SPDX-License-Identifier: GPL-2.0-only
/*
 * The workload of experiment mode-switch: options, and the order of its parts. Where the module
 * offers no supervisor mode, calls are made by traps alone; a row says why.
 */
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "perf_events.h"
#include "loops.h"
#include "mode.h"
#include "workload.h"

#define REPEATS_MAX 1000
#define EVENTS_MAX 10000000
#define DELAYS_MAX 10000
#define DIRECTORY "/dev/shm/mode-switch"

static char output[1 << 16];	/* not from malloc, which would move the break */

static struct workload parse(int argc, char **argv)
{
	static const struct option options[] = {
		{ "kind", required_argument, NULL, 'k' },
		{ "link", required_argument, NULL, 'l' },
		{ "calls", required_argument, NULL, 'c' },
		{ "repeats", required_argument, NULL, 'r' },
		{ "seed", required_argument, NULL, 's' },
		{ "events", required_argument, NULL, 'e' },
		{ "delays", required_argument, NULL, 'd' },
		{ "counters", no_argument, NULL, 'p' },
		{ NULL, 0, NULL, 0 },
	};
	struct workload workload = {
		.kind = MEASURE_MEASURED, .link = "static", .repeats = 3,
		.calls = "nosys,getpid,getppid,sbrk,read,write,read1,write1",
	};
	int letter;

	while ((letter = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (letter) {
		case 'k': workload.kind = measure_parse_kind(optarg); break;
		case 'l': workload.link = optarg; break;
		case 'c': workload.calls = optarg; break;
		case 'r':
			workload.repeats = (unsigned int)measure_parse_number("--repeats", optarg,
									      REPEATS_MAX);
			break;
		case 's': measure_seed(measure_parse_number("--seed", optarg, UINT32_MAX)); break;
		case 'e':
			workload.events = (unsigned int)measure_parse_number("--events", optarg,
									     EVENTS_MAX);
			break;
		case 'd':
			workload.delays = (unsigned int)measure_parse_number("--delays", optarg,
									     DELAYS_MAX);
			break;
		case 'p': workload.counters = true; break;
		default:
			measure_fail("usage: mode-switch [--kind counted|measured] [--link NAME] "
				     "[--calls LIST] [--repeats N] [--seed N] [--events N] "
				     "[--delays N] [--counters]");
		}
	}
	return workload;
}

int main(int argc, char **argv)
{
	struct workload workload;

	setvbuf(stdout, output, _IOFBF, sizeof(output));
	workload = parse(argc, argv);
	measure_pin(0);
	measure_calibrate(workload.kind);
	if (workload.counters)
		events_open();
	mkdir(DIRECTORY, 0700);
	loop_prepare(DIRECTORY);
	workload.module = mode_open(&workload.why);
	if (workload.module < 0)
		printf("{\"skipped\": \"supervisor\", \"reason\": \"%s\"}\n", workload.why);
	if (workload.kind == MEASURE_COUNTED) {
		calls_count(&workload);
		if (workload.module >= 0)
			switches_count(&workload);
	} else {
		calls_measure(&workload);
	}
	if (workload.events)
		calls_events(&workload);
	if (workload.delays && workload.module >= 0)
		delay_count(&workload);
	printf("{\"complete\": true}\n");
	return 0;
}
