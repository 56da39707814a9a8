// SPDX-License-Identifier: GPL-2.0-only
/*
 * The observed side of experiment peek-interval: a process with a page of memory that stays where
 * it is, and what happens to that page, phase by phase. It tells nobody: the observer finds it in
 * the machine's memory by a second page, the announcement, which holds its own physical address as
 * proof that it is not a copy.
 *
 * Phases: "quiet" leaves the page alone, "written" writes to all of it without a pause, "steps"
 * climbs a staircase of known length: a record, guarded by two counters, with the number of the
 * step and the time. A phase lasts until the observer has seen enough.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "announce.h"
#include "workload_clock.h"
#include "measure.h"

#define PAGE ANNOUNCE_PAGE
#define LINE 64u
#define STEP_MS 10

/* At the start of the observed page in phase "steps". */
struct record {
	volatile uint32_t seq0;
	uint32_t zero;
	volatile uint64_t step;
	volatile uint64_t complement;	/* ~step */
	volatile uint64_t time_ns;	/* CLOCK_MONOTONIC of this machine, when it was written */
	volatile uint32_t seq1;
};

/* Two pages that are in memory and stay there. */
static void *pin_pages(void)
{
	uint8_t *pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			      -1, 0);

	if (pages == MAP_FAILED || mlock(pages, 2 * PAGE))
		measure_fail("two pages cannot be pinned: %m");
	memset(pages, 0, 2 * PAGE);
	return pages;
}

static uint64_t keep_quiet(void *page)
{
	(void)page;
	announce_await();
	return 0;
}

static uint64_t write_all(void *page)
{
	uint64_t writes = 0;
	unsigned int at;

	while (!announce_may_go_on(0))
		for (unsigned int turn = 0; turn < 1000; turn++, writes++)
			for (at = 0; at < PAGE; at += LINE)
				*(volatile uint32_t *)((uint8_t *)page + at) = (uint32_t)writes;
	return writes;
}

static uint64_t climb(void *page)
{
	struct record *record = page;
	uint64_t step = 0;

	do {
		step++;
		record->seq0++;
		record->step = step;
		record->complement = ~step;
		record->time_ns = now_ns();
		record->seq1++;
	} while (!announce_may_go_on(STEP_MS));
	return step;
}

static const struct {
	const char *name;
	uint64_t (*run)(void *page);
} phases[] = {
	{ "quiet", keep_quiet },
	{ "written", write_all },
	{ "steps", climb },
};

static void run_phase(const char *name, struct announcement *announcement, void *page)
{
	unsigned int i = 0;
	uint64_t made;

	while (i < sizeof(phases) / sizeof(phases[0]) && strcmp(phases[i].name, name))
		i++;
	if (i == sizeof(phases) / sizeof(phases[0]))
		measure_fail("no phase '%s'", name);
	announce_next(announcement, i);
	made = phases[i].run(page);
	if (announce_physical(page) != announcement->region)
		measure_fail("the page has moved");
	printf("{\"check\": \"%s: the page stayed where it was\", \"made\": %llu}\n", name,
	       (unsigned long long)made);
	measure_progress((unsigned int)announcement->phase, 2);
}

int main(int argc, char **argv)
{
	struct announcement *announcement;
	uint8_t *page;

	if (argc < 2)
		measure_fail("usage: peek-interval PHASE...");
	announcement = pin_pages();
	page = (uint8_t *)announcement + PAGE;
	announce_begin(announcement, announce_physical(announcement), announce_physical(page));
	for (int i = 1; i < argc; i++)
		run_phase(argv[i], announcement, page);
	announce_next(announcement, ANNOUNCE_OVER);	/* a figure that ends later is none */
	printf("{\"complete\": true}\n");
	return 0;
}
