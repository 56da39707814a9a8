// SPDX-License-Identifier: GPL-2.0-only
/*
 * The observer's side of Fig. 6: reads a region of another program's memory from end to end, again
 * and again, as that program (bandwidth.c) announces it, and says how much was read during each
 * run. Memory is read by the sampler's own sources (sampler/source.h), in pieces of what the
 * paper's bus carried at a time.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "announce.h"
#include "workload_clock.h"
#include "measure.h"
#include "settings.h"
#include "source.h"

#define LOOK_NS 200000		/* between two looks for the next phase while nothing is read */
#define LOOK_READS 16u		/* most reads between two looks */
#define SILENCE_NS (3600 * NS_PER_S)	/* without a new phase: the other side is gone */

struct sweep {
	struct source source;
	uint64_t announcement, region, other;	/* addresses */
	uint64_t at;		/* offset of the next piece */
	uint64_t reads, changes;	/* in this phase */
	uint64_t last[REGION_BYTES_MAX / PIECE_BYTES];	/* first word of each piece */
	uint64_t deadline_ns;	/* of the next paced read */
	uint64_t begin_ns, begin_used_ns;	/* when this phase was seen */
};

static void must_read(struct sweep *sweep, uint64_t address, void *into, size_t length)
{
	if (source_read(&sweep->source, address, into, length))
		measure_fail("%zu bytes at %#" PRIx64 " cannot be read", length, address);
}

static uint64_t word(struct sweep *sweep, size_t offset)
{
	uint64_t value;

	must_read(sweep, sweep->announcement + offset, &value, sizeof(value));
	return value;
}

/* The phase, and the setting that belongs to it. */
static uint64_t phase_now(struct sweep *sweep, uint64_t *setting)
{
	uint64_t before, phase = word(sweep, offsetof(struct announcement, phase));

	do {
		before = phase;
		*setting = word(sweep, offsetof(struct announcement, setting));
		phase = word(sweep, offsetof(struct announcement, phase));
	} while (phase != before);
	return phase;
}

/* One piece; the sweep then goes on behind it, or begins again. */
static void read_piece(struct sweep *sweep, uint64_t base, uint32_t bytes)
{
	uint64_t piece[PIECE_BYTES / sizeof(uint64_t)];
	uint64_t *last = &sweep->last[sweep->at / PIECE_BYTES];

	must_read(sweep, base + sweep->at, piece, sizeof(piece));
	sweep->changes += piece[0] != *last;
	*last = piece[0];
	sweep->reads++;
	sweep->at += PIECE_BYTES;
	if (sweep->at >= bytes)
		sweep->at = 0;
}

static void sleep_until(uint64_t ns)
{
	const struct timespec time = { (time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S) };

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
}

/* Reads a little of what the setting asks for; then the phase is looked at again. */
static void serve(struct sweep *sweep, uint64_t setting)
{
	const uint32_t bytes = settings_bytes(setting);
	const uint64_t base = settings_reads(setting) == READS_OTHER ? sweep->other
								     : sweep->region;

	switch (settings_reads(setting)) {
	case READS_OTHER:
	case READS_SAME:
		for (unsigned int i = 0; i < LOOK_READS; i++)
			read_piece(sweep, base, bytes);
		return;
	case READS_PACED:
		read_piece(sweep, base, bytes);
		sweep->deadline_ns += PACED_NS;
		if (sweep->deadline_ns < now_ns())	/* was paused: nothing is made up for */
			sweep->deadline_ns = now_ns();
		return sleep_until(sweep->deadline_ns);
	default:
		return sleep_until(now_ns() + LOOK_NS);
	}
}

/* How much of the phase this program was reading: others may run on its processor, too. */
static double share_of(const struct sweep *sweep, uint64_t setting)
{
	const double ns = (double)(now_ns() - sweep->begin_ns);

	if (settings_reads(setting) == READS_PACED)
		return (double)(sweep->reads * PACED_NS) / ns;
	return (double)(clock_read(CLOCK_PROCESS_CPUTIME_ID) - sweep->begin_used_ns) / ns;
}

static void report(const struct sweep *sweep, uint64_t phase, uint64_t setting, uint64_t early)
{
	printf("{\"phase\": %" PRIu64 ", \"sweep_reads\": %" PRIu64 ", \"early\": %" PRIu64
	       ", \"changes\": %" PRIu64 ", \"share\": %.3f}\n", phase, sweep->reads, early,
	       sweep->changes, share_of(sweep, setting));
}

static void begin_phase(struct sweep *sweep, uint64_t phase)
{
	sweep->reads = sweep->changes = 0;
	sweep->at = phase % 2 ? 0 : sweep->at;
	sweep->begin_ns = now_ns();
	sweep->begin_used_ns = clock_read(CLOCK_PROCESS_CPUTIME_ID);
}

/* From the first phase to the last. Odd phases are for getting ready, even ones are runs. */
static void follow(struct sweep *sweep)
{
	uint64_t phase = 0, next, setting = settings_pack(READS_NONE, PIECE_BYTES), early = 0;
	uint64_t coming;

	begin_phase(sweep, phase);
	while (setting != ANNOUNCE_OVER) {
		next = phase_now(sweep, &coming);
		if (next == phase) {
			if (now_ns() - sweep->begin_ns > SILENCE_NS)
				measure_fail("nothing was announced for too long");
			serve(sweep, setting);
			continue;
		}
		if (phase && phase % 2 == 0)
			report(sweep, phase, setting, early);
		early = next == phase + 1 ? sweep->reads : 0;
		phase = next;
		setting = coming;
		if (setting != ANNOUNCE_OVER &&
		    (settings_reads(setting) >= READS || !settings_bytes(setting) ||
		     settings_bytes(setting) > REGION_BYTES_MAX))
			measure_fail("setting %#" PRIx64 " is none", setting);
		begin_phase(sweep, phase);
		if (phase % 2) {	/* the other side waits for that, at its end, too */
			printf("{\"ready\": %" PRIu64 "}\n", phase);
			fflush(stdout);
		}
	}
}

static void parse(int argc, char **argv, struct sweep *sweep)
{
	static const struct option longs[] = {
		{ "source", required_argument, NULL, 's' },
		{ "announcement", required_argument, NULL, 'a' },
		{ "region", required_argument, NULL, 'r' },
		{ "cpu", required_argument, NULL, 'c' },
		{ 0 },
	};
	char error[SOURCE_ERROR_BYTES];
	const char *source = NULL;
	int option;

	while ((option = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (option == 's')
			source = optarg;
		else if (option == 'a')
			sweep->announcement = measure_parse_number("--announcement", optarg,
								   INT64_MAX);
		else if (option == 'r')
			sweep->region = measure_parse_number("--region", optarg, INT64_MAX);
		else if (option == 'c')
			measure_pin((unsigned int)measure_parse_number("--cpu", optarg, 65535));
		else
			source = NULL;
	}
	if (!source || optind < argc)
		measure_fail("usage: peek-sweep --source SOURCE --announcement ADDRESS --region "
			     "ADDRESS [--cpu N]");
	sweep->other = sweep->region + REGION_BYTES_MAX;
	if (source_open(&sweep->source, source, error))
		measure_fail("%s", error);
}

int main(int argc, char **argv)
{
	static struct sweep sweep;

	parse(argc, argv, &sweep);
	prctl(PR_SET_TIMERSLACK, 1);	/* ns, else sleeping takes half an interval longer */
	follow(&sweep);
	source_close(&sweep.source);
	printf("{\"complete\": true}\n");
	return 0;
}
