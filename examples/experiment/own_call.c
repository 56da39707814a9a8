// SPDX-License-Identifier: MIT
/*
 * The workload: makes a call plainly and in batches, counts its instructions, and proves that both
 * did the work. It prints one JSON object a line, and computes no figure from them.
 *
 *	own-call REPEATS
 */
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <trapless.h>
#include <unistd.h>

#include "measure.h"

enum { CALLS = 32 };

static struct tl_batch *batch;
static long parent;
static bool failed;

static void plain(void *arg)
{
	(void)arg;
	for (int i = 0; i < CALLS; i++)
		failed |= syscall(SYS_getppid) != parent;
}

static void batched(void *arg)
{
	(void)arg;
	for (int i = 0; i < CALLS; i++)
		TL_ADD(batch, SYS_getppid);
	failed |= tl_batch_flush(batch) != CALLS;
	for (int i = 0; i < CALLS; i++)
		failed |= tl_batch_result(batch, i) != parent;
}

/* Returns how often it ran: a run into which a tick of the timer fell is made again. */
static unsigned int count(const char *way, void (*calls)(void *arg), unsigned int repeats)
{
	unsigned int runs = 0;
	uint64_t total;

	for (unsigned int done = 0; done < repeats; runs++)
		if (measure_once(MEASURE_COUNTED, calls, NULL, &total)) {
			printf("{\"way\": \"%s\", \"value\": %.2f}\n", way, (double)total / CALLS);
			done++;
		}
	return runs;
}

int main(int argc, char **argv)
{
	struct tl_stats stats = { .size = sizeof(stats) };
	unsigned int repeats, runs;
	int error = tl_batch_create(&batch, CALLS, TL_MODULE);

	if (argc != 2)
		measure_fail("usage: own-call REPEATS");
	if (error)
		measure_fail("the module offers no batch: %s", strerror(-error));
	repeats = (unsigned int)measure_parse_number("REPEATS", argv[1], 1000);
	parent = getppid();
	measure_calibrate(MEASURE_COUNTED);
	count("plain", plain, repeats);
	runs = count("batch", batched, repeats);
	if (failed)
		measure_fail("a call had another result");
	tl_batch_get_stats(batch, &stats);
	printf("{\"check\": \"the module made each call\", \"made\": %u, \"executed\": %llu}\n",
	       runs * CALLS, (unsigned long long)stats.executed);
	printf("{\"complete\": true}\n");
	tl_batch_destroy(batch);
	return 0;
}
