// SPDX-License-Identifier: GPL-2.0-only
/*
 * See worked.h. The scheduler adds up how long processes ran, in ns of a clock that the emulator
 * advances by one an instruction: /proc/schedstat has it for each CPU, here of one.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "measure.h"
#include "worked.h"

#define SCHEDSTAT "/proc/schedstat"
#define LOOP_ROUNDS 5000000u
#define LOOP_ERROR_SHARE 100u	/* the result may be wrong by a hundredth: a tick is included */
#define IDLE_NS 50000000l
#define IDLE_ERROR_SHARE 20u	/* at most this part of an idle time may count as work */
#define TRIALS_MAX 100u		/* others may still be starting */

static void rest(long ns)
{
	const struct timespec pause = { .tv_nsec = ns };

	nanosleep(&pause, NULL);
}

uint64_t worked_instructions(void)
{
	FILE *file = fopen(SCHEDSTAT, "re");
	char line[512];
	uint64_t ns;

	if (!file)
		measure_fail("%s: %s", SCHEDSTAT, strerror(errno));
	rest(1);	/* this process's time is added when it leaves the processor */
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "cpu0 %*u %*u %*u %*u %*u %*u %" SCNu64, &ns) == 1) {
			fclose(file);
			return ns;
		}
	}
	measure_fail("%s: no line of cpu0 with the time that processes ran", SCHEDSTAT);
}

static uint64_t told_of_a_loop(void)
{
	uint64_t begin = worked_instructions();

	__asm__ volatile("mov %0, %%ecx\n1:\tdec %%ecx\n\tjnz 1b"
			 : : "i"(LOOP_ROUNDS) : "ecx", "cc");
	return worked_instructions() - begin;
}

static uint64_t told_of_idleness(void)
{
	uint64_t begin = worked_instructions();

	rest(IDLE_NS);
	return worked_instructions() - begin;
}

void worked_check(void)
{
	const uint64_t loop = 2 * LOOP_ROUNDS;
	unsigned int trials = 0;
	uint64_t told, idle;

	do {
		told = told_of_a_loop();
		idle = told_of_idleness();
		if (told >= loop && (told - loop) * LOOP_ERROR_SHARE <= loop &&
		    idle * IDLE_ERROR_SHARE <= IDLE_NS) {
			printf("{\"check\": \"processes' time is instructions, and idle time is "
			       "none\", \"made\": %" PRIu64 ", \"executed\": %" PRIu64 "}\n", loop,
			       told);
			return;
		}
	} while (trials++ < TRIALS_MAX);
	measure_fail("a loop of %" PRIu64 " instructions was told as %" PRIu64 ", %ld idle ns as %"
		     PRIu64, loop, told, IDLE_NS, idle);
}
