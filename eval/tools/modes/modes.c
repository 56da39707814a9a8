// SPDX-License-Identifier: GPL-2.0-only
/*
 * Runs an unmodified program in user and in supervisor mode by turns, compares what it prints, and
 * says what each run cost and where its calls ended. Runs in the lab's guest.
 *
 * It owns the command line and the check of the clock that costs are taken from. Commands that
 * end are mode_command.c's business, servers mode_server.c's.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workload_clock.h"
#include "mode_run.h"

#define REPEATS_MAX 1000u
#define LIMIT_S 7200u
#define LIMIT_S_MAX 86400u
#define PORT_MAX 65535u
#define CLOCK_ROUNDS 5000000u
#define CLOCK_ERROR_SHARE 100u	/* the scheduler's clock may be wrong by a hundredth */

static uint64_t own_time_ns(void)
{
	return clock_read(CLOCK_PROCESS_CPUTIME_ID);
}

/* A nanosecond of the scheduler's must be an instruction, or costs are no counts. */
static void check_clock(void)
{
	const uint64_t loop = 2 * CLOCK_ROUNDS;
	uint64_t begin, told;

	measure_calibrate(MEASURE_COUNTED);
	begin = own_time_ns();
	__asm__ volatile("mov %0, %%ecx\n1:\tdec %%ecx\n\tjnz 1b"
			 : : "i"(CLOCK_ROUNDS) : "ecx", "cc");
	told = own_time_ns() - begin;
	if (told < loop || told - loop > loop / CLOCK_ERROR_SHARE)
		measure_fail("the scheduler's clock does not count instructions: %" PRIu64
			     " read as %" PRIu64, loop, told);
}

static void __attribute__((noreturn)) usage(void)
{
	measure_fail("usage: modes --call NAME [--kind counted|measured] [--repeats N] [--limit S] "
		     "[--status N] [--input FILE] [--port N --load SHELL-COMMAND] -- PROGRAM "
		     "[ARGUMENT]...");
}

static struct job parse(int argc, char **argv)
{
	enum { CALL = 256, KIND, REPEATS, LIMIT, STATUS, INPUT, PORT, LOAD };
	static const struct option longs[] = {
		{ "call", required_argument, NULL, CALL },
		{ "kind", required_argument, NULL, KIND },
		{ "repeats", required_argument, NULL, REPEATS },
		{ "limit", required_argument, NULL, LIMIT },
		{ "status", required_argument, NULL, STATUS },
		{ "input", required_argument, NULL, INPUT },
		{ "port", required_argument, NULL, PORT },
		{ "load", required_argument, NULL, LOAD },
		{ 0 },
	};
	struct job job = { .kind = MEASURE_MEASURED, .repeats = 1, .limit_s = LIMIT_S,
			   .input = "/dev/null" };
	unsigned int *const numbers[] = { [REPEATS - CALL] = &job.repeats,
					  [LIMIT - CALL] = &job.limit_s,
					  [PORT - CALL] = &job.port };
	static const uint64_t limits[] = { [REPEATS - CALL] = REPEATS_MAX,
					   [LIMIT - CALL] = LIMIT_S_MAX,
					   [PORT - CALL] = PORT_MAX };
	int option, index;

	while ((option = getopt_long(argc, argv, "+", longs, &index)) != -1) {
		if (option == CALL)
			job.call = optarg;
		else if (option == KIND)
			job.kind = measure_parse_kind(optarg);
		else if (option == STATUS)
			job.status = (int)measure_parse_number("--status", optarg, 255);
		else if (option == INPUT)
			job.input = optarg;
		else if (option == LOAD)
			job.load = optarg;
		else if (option == REPEATS || option == LIMIT || option == PORT)
			*numbers[option - CALL] = (unsigned int)measure_parse_number(
				longs[index].name, optarg, limits[option - CALL]);
		else
			usage();
	}
	job.argv = argv + optind;
	if (!job.argv[0] || !job.call || !job.port != !job.load)
		usage();
	return job;
}

int main(int argc, char **argv)
{
	struct job job = parse(argc, argv);
	const char *reason = "";

	job.switchable = device_offers(&reason);
	if (!job.switchable)
		printf("{\"skipped\": \"%s in supervisor mode\", \"reason\": \"%s\"}\n", job.call,
		       reason);
	if (job.kind == MEASURE_COUNTED)
		check_clock();
	measure_limit(job.limit_s);
	if (job.port)
		server_run(&job);
	else
		command_run(&job);
	return 0;
}
