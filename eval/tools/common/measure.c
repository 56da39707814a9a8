// SPDX-License-Identifier: GPL-2.0-only
/*
 * See measure.h. It knows nothing of mechanisms and experiments.
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "measure.h"

#define CALIBRATION_NOPS 1000
#define CALIBRATION_TRIES 64
#define CLOCK_NS 20000000u	/* how long the counter is held against the clock */

static uint64_t overhead;
static uint64_t random_state = 1;

void measure_fail(const char *format, ...)
{
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	for (char *c = text; *c; c++)
		if (*c == '"' || *c == '\\' || *c == '\n')
			*c = '\'';
	printf("{\"failure\": \"%s\"}\n", text);
	fflush(stdout);
	fprintf(stderr, "check failed: %s\n", text);
	exit(1);
}

static void too_late(int signal)
{
	static const char text[] = "{\"failure\": \"it did not end in time\"}\n";

	(void)signal;
	if (write(STDOUT_FILENO, text, sizeof(text) - 1) < 0)
		_exit(2);
	_exit(1);
}

void measure_limit(unsigned int seconds)
{
	signal(SIGALRM, too_late);
	alarm(seconds);
}

/*
 * The coarse clock lives in memory shared with the kernel and moves at timer ticks only: reading
 * it before and after tells without a crossing whether a tick was taken in between.
 */
static uint64_t tick_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t least(uint64_t (*sample)(void))
{
	uint64_t best = UINT64_MAX;

	for (int i = 0; i < CALIBRATION_TRIES; i++) {
		uint64_t value = sample();

		if (value < best)
			best = value;
	}
	return best;
}

static uint64_t sample_empty(void)
{
	uint64_t start = measure_counter();

	return measure_counter() - start;
}

static uint64_t sample_nops(void)
{
	uint64_t start = measure_counter();

	__asm__ volatile(".rept %c0\n\tnop\n\t.endr" : : "i"(CALIBRATION_NOPS));
	return measure_counter() - start;
}

static uint64_t sample_loop(void)
{
	uint64_t start = measure_counter();

	processor_loop();
	return measure_counter() - start;
}

/* How fast the counter runs, by the kernel's clock that nobody adjusts. */
static double clocks_per_ns(void)
{
	struct timespec now;
	uint64_t begin_ns, begin, end_ns, end;

	clock_gettime(CLOCK_MONOTONIC_RAW, &now);
	begin = measure_counter();
	begin_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
	do {
		clock_gettime(CLOCK_MONOTONIC_RAW, &now);
		end = measure_counter();
		end_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
	} while (end_ns - begin_ns < CLOCK_NS);
	return (double)(end - begin) / (double)(end_ns - begin_ns);
}

/* Exactly, or by less than one step of the counter where that is several instructions. */
static bool counted_as(uint64_t count, uint64_t instructions)
{
	uint64_t apart = count > instructions ? count - instructions : instructions - count;

	return apart < PROCESSOR_COUNTER_STEP;
}

uint64_t measure_calibrate(enum measure_kind kind)
{
	uint64_t nops, loop;

	overhead = least(sample_empty);
	if (kind == MEASURE_MEASURED) {
		printf("{\"calibration\": \"%s\", \"overhead\": %lu, "
		       "\"clocks_per_ns\": %.6f, \"hypervisor\": \"%s\"}\n",
		       measure_unit(kind), overhead, clocks_per_ns(), processor_hypervisor());
		return overhead;
	}
	nops = least(sample_nops) - overhead;
	loop = least(sample_loop) - overhead;
	printf("{\"calibration\": \"%s\", \"overhead\": %lu, \"nops\": %d, \"nops_counted\": %lu, "
	       "\"loop\": %d, \"loop_counted\": %lu}\n", measure_unit(kind), overhead,
	       CALIBRATION_NOPS, nops, PROCESSOR_LOOP, loop);
	if (!counted_as(nops, CALIBRATION_NOPS) || !counted_as(loop, PROCESSOR_LOOP))
		measure_fail("the counter does not count instructions: %d nops read as %lu, a loop "
			     "of %d as %lu; run with --icount on one CPU", CALIBRATION_NOPS, nops,
			     PROCESSOR_LOOP, loop);
	return overhead;
}

void measure_await_tick(void)
{
	uint64_t tick = tick_now();

	while (tick_now() == tick)
		;
}

bool measure_once(enum measure_kind kind, void (*fn)(void *arg), void *arg, uint64_t *value)
{
	uint64_t tick = tick_now();
	uint64_t start = measure_counter();

	fn(arg);
	*value = measure_counter() - start - overhead;
	return kind != MEASURE_COUNTED || tick_now() == tick;
}

void measure_seed(uint64_t seed)
{
	random_state = seed ? seed : 1;
}

/* xorshift64*: small, seeded, the same everywhere. */
uint64_t measure_random(void)
{
	random_state ^= random_state >> 12;
	random_state ^= random_state << 25;
	random_state ^= random_state >> 27;
	return random_state * 0x2545F4914F6CDD1Du;
}

void measure_shuffle(unsigned int *items, unsigned int count)
{
	for (unsigned int i = count; i > 1; i--) {
		unsigned int other = (unsigned int)((measure_random() >> 33) % i);
		unsigned int item = items[i - 1];

		items[i - 1] = items[other];
		items[other] = item;
	}
}

uint64_t measure_parse_number(const char *option, const char *text, uint64_t limit)
{
	char *end;
	uint64_t number;

	errno = 0;
	number = strtoull(text, &end, 10);
	if (errno || end == text || *end || number > limit)
		measure_fail("%s: '%s' is not a number of 0 to %lu", option, text, limit);
	return number;
}

unsigned int measure_parse_numbers(const char *text, unsigned int *out, unsigned int limit)
{
	char copy[256], *save = NULL;
	unsigned int count = 0;

	if (strlen(text) >= sizeof(copy))
		measure_fail("list too long: '%s'", text);
	strcpy(copy, text);
	for (char *item = strtok_r(copy, ",", &save); item; item = strtok_r(NULL, ",", &save)) {
		uint64_t number = measure_parse_number("list", item, limit);

		if (!number || count == MEASURE_LIST_MAX)
			measure_fail("list '%s': 1 to %d numbers of 1 to %u", text,
				     MEASURE_LIST_MAX, limit);
		out[count++] = (unsigned int)number;
	}
	if (!count)
		measure_fail("empty list");
	return count;
}

bool measure_list_has(const char *list, const char *name)
{
	size_t length = strlen(name);

	for (const char *at = list; (at = strstr(at, name)); at += length)
		if ((at == list || at[-1] == ',') && (!at[length] || at[length] == ','))
			return true;
	return false;
}

bool measure_opened(char reason[MEASURE_REASON_CHARS], int error)
{
	if (error == MEASURE_NOT_ASKED)
		strcpy(reason, "not asked for");
	else if (error)
		snprintf(reason, MEASURE_REASON_CHARS, "not here: %s", strerror(-error));
	return !error;
}

const char *measure_unit(enum measure_kind kind)
{
	return kind == MEASURE_COUNTED ? "instructions" : "tsc";
}

enum measure_kind measure_parse_kind(const char *text)
{
	if (!strcmp(text, "counted"))
		return MEASURE_COUNTED;
	if (!strcmp(text, "measured"))
		return MEASURE_MEASURED;
	measure_fail("--kind: '%s' is neither counted nor measured", text);
}

void measure_pin(unsigned int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		measure_fail("cannot run on CPU %u: %s", cpu, strerror(errno));
}

void measure_progress(unsigned int done, unsigned int total)
{
	printf("{\"progress\": %u, \"total\": %u}\n", done, total);
	fflush(stdout);
}
