// SPDX-License-Identifier: GPL-2.0-only
/*
 * trapless-estimate - times plain system calls, io_uring and the module's own loop in one process,
 * in alternating rounds, and prints a row a subject. `trapless estimate` starts it in many
 * processes and makes the sums. This file owns options, rounds and output.
 */
#include "subjects.h"

#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUNDS_MAX 2000u
#define ROUNDS_MIN 4u
#define WARM_SHARE 4u		/* before a sample, a quarter of its calls, untimed */
#define URING_SHARE 0.2		/* of the time, for io_uring */

static struct subject subjects[SUBJECTS_MAX];
static uint64_t *samples[SUBJECTS_MAX];
static uint64_t seed = 1;

static const char usage[] =
	"usage: trapless-estimate --loop NAME [--folder DIR] [--directory DIR] [--cpu N]\n"
	"                         [--seconds S] [--rounds N] [--seed N] [--module]\n"
	"`trapless estimate` starts it; one process is one placement in memory.\n";

static void __attribute__((noreturn)) fail(const char *what, const char *value)
{
	fprintf(stderr, "trapless-estimate: %s: %s\n", what, value);
	exit(1);
}

static double number(const char *option, const char *text, double least, double most)
{
	char *end;
	double value = strtod(text, &end);

	if (end == text || *end || !(value >= least && value <= most))
		fail(option, text);
	return value;
}

static uint64_t tsc(void)
{
	uint32_t low, high;

	__asm__ volatile("lfence; rdtsc; lfence" : "=a"(low), "=d"(high) : : "memory");
	return (uint64_t)high << 32 | low;
}

static double clock_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_RAW, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		fail("--cpu", strerror(errno));
}

static unsigned int below(unsigned int limit)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (unsigned int)((seed >> 33) % limit);
}

static void sample(unsigned int which, unsigned int round, uint64_t overhead)
{
	const struct subject *subject = &subjects[which];
	unsigned int warm = subject->calls / WARM_SHARE / subject->n * subject->n;
	uint64_t start, took;

	subject->run(subject, warm ? warm : subject->n);
	start = tsc();
	subject->run(subject, subject->calls);
	took = tsc() - start;
	samples[which][round] = took > overhead ? took - overhead : 0;
}

/* Every round takes the subjects in another order: none always follows the same one. */
static unsigned int run_rounds(unsigned int first, unsigned int count, double seconds,
			       unsigned int rounds, uint64_t overhead)
{
	unsigned int order[SUBJECTS_MAX], round;
	double end = clock_s() + seconds;

	for (unsigned int i = 0; i < count; i++) {
		order[i] = first + i;
		samples[first + i] = calloc(rounds, sizeof(uint64_t));
		if (!samples[first + i])
			fail("rounds", strerror(errno));
	}
	for (round = 0; round < rounds && (round < ROUNDS_MIN || clock_s() < end); round++) {
		for (unsigned int i = count; i > 1; i--) {
			unsigned int other = below(i), item = order[i - 1];

			order[i - 1] = order[other];
			order[other] = item;
		}
		for (unsigned int i = 0; i < count; i++)
			sample(order[i], round, overhead);
	}
	return round;
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static uint64_t least_overhead(void)
{
	uint64_t least = UINT64_MAX;

	for (unsigned int i = 0; i < 64; i++) {
		uint64_t start = tsc(), took = tsc() - start;

		least = took < least ? took : least;
	}
	return least;
}

static void print_row(unsigned int which, unsigned int rounds)
{
	const struct subject *subject = &subjects[which];
	double calls = subject->calls;

	qsort(samples[which], rounds, sizeof(uint64_t), compare);
	printf("{\"subject\": \"%s\", \"least\": %.4f, \"median\": %.4f}\n", subject->name,
	       (double)samples[which][0] / calls, (double)samples[which][rounds / 2] / calls);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "loop", required_argument, NULL, 'l' },
		{ "folder", required_argument, NULL, 'f' },
		{ "directory", required_argument, NULL, 'D' },
		{ "cpu", required_argument, NULL, 'c' },
		{ "seconds", required_argument, NULL, 's' },
		{ "rounds", required_argument, NULL, 'r' },
		{ "seed", required_argument, NULL, 'd' },
		{ "module", no_argument, NULL, 'm' },
		{ NULL, 0, NULL, 0 },
	};
	struct subjects_config config = { .folder = "/tmp" };
	unsigned int most = ROUNDS_MAX, rounds;
	double seconds = 2, began;
	unsigned int count, rings, ring_rounds;
	uint64_t overhead, first;
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 'l': config.loop = optarg; break;
		case 'f': config.folder = optarg; break;
		case 'D': config.directory = optarg; break;
		case 'c': pin((int)number("--cpu", optarg, 0, CPU_SETSIZE - 1)); break;
		case 's': seconds = number("--seconds", optarg, 0, 3600); break;
		case 'r': most = (unsigned int)number("--rounds", optarg, 1, ROUNDS_MAX); break;
		case 'd': seed = (uint64_t)number("--seed", optarg, 0, 1e9); break;
		case 'm': config.module = 1; break;
		default: fputs(usage, stderr); return 2;
		}
	}
	if (!config.loop || optind != argc) {
		fputs(usage, stderr);
		return 2;
	}
	count = subjects_open(subjects, &config);
	overhead = least_overhead();
	began = clock_s();
	first = tsc();
	rounds = run_rounds(0, count, seconds * (1 - URING_SHARE), most, overhead);
	/*
	 * Last, because io_uring may leave threads behind that share the table of files: each call
	 * with a descriptor then takes and puts a reference, which it does not do in a program
	 * without them.
	 */
	rings = subjects_open_uring(subjects + count);
	ring_rounds = run_rounds(count, rings, seconds * URING_SHARE, most, overhead);
	printf("{\"rounds\": %u, \"clocks_per_ns\": %.6f}\n", rounds,
	       (double)(tsc() - first) / ((clock_s() - began) * 1e9));
	for (unsigned int i = 0; i < count + rings; i++)
		print_row(i, i < count ? rounds : ring_rounds);
	return 0;
}
