// SPDX-License-Identifier: GPL-2.0-only
/*
 * See perf_events.h. Each event is counted in user mode and in the kernel and both are added: a
 * program in supervisor mode counts as kernel.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "../../../stat/count/processor_counters.h"
#include "perf_events.h"
#include "measure.h"

#define GROUP_EVENTS 2		/* in both modes: four counters, which every processor has */
#define GROUPS_MAX (TL_COUNTERS_MAX / GROUP_EVENTS)
#define CALIBRATION_TRIES 16
#define WHOLE 0.999		/* share of the time in which events must have been counted */

static struct tl_counters groups[GROUPS_MAX];
static uint64_t empty[GROUPS_MAX][TL_COUNTERS_MAX];
static unsigned int group_count;
static struct tl_counter_values last;

static uint64_t both_modes(unsigned int event)
{
	return last.counts[0][event] + last.counts[1][event];
}

static void nothing(void *arg)
{
	(void)arg;
}

/* The counts of counting itself: the least of some tries. */
static void calibrate(unsigned int group)
{
	for (unsigned int event = 0; event < groups[group].count; event++)
		empty[group][event] = UINT64_MAX;
	for (unsigned int try = 0; try < CALIBRATION_TRIES; try++) {
		events_count(group, nothing, NULL);
		for (unsigned int event = 0; event < groups[group].count; event++)
			if (both_modes(event) < empty[group][event])
				empty[group][event] = both_modes(event);
	}
}

static void add_group(const struct tl_counter_event *events, unsigned int count)
{
	struct tl_counter_event chosen[GROUP_EVENTS + 1] = { 0 };
	char error[TL_COUNTERS_ERROR_MAX];

	memcpy(chosen, events, count * sizeof(*events));
	if (group_count == GROUPS_MAX ||
	    tl_counters_open(&groups[group_count], 0, false, chosen, error))
		return;
	for (unsigned int event = 0; event < groups[group_count].count; event++)
		printf("%s\"%s\"", group_count || event ? ", " : "",
		       groups[group_count].events[event].name);
	calibrate(group_count++);
}

/*
 * The tracepoint of system calls is left alone: while it is on, every call takes the kernel's long
 * way, which no batch and no program in supervisor mode may take.
 */
void events_open(void)
{
	struct tl_counters all;
	char error[TL_COUNTERS_ERROR_MAX] = "";
	bool hardware = !tl_counters_open(&all, 0, false, NULL, error);
	unsigned int count = 0;

	if (hardware) {
		tl_counters_close(&all);
		while (all.events[count].name && count < TL_COUNTERS_MAX &&
		       strcmp(all.events[count].name, tl_counters_software[0].name))
			count++;
	}
	printf("{\"counters\": [");
	for (unsigned int at = 0; at < count; at += GROUP_EVENTS)
		add_group(&all.events[at], count - at < GROUP_EVENTS ? count - at : GROUP_EVENTS);
	add_group(tl_counters_software, GROUP_EVENTS);
	*strchrnul(error, ';') = '\0';
	printf("]}\n");
	if (!hardware)
		printf("{\"skipped\": \"the processor's counters\", \"reason\": \"%s\"}\n", error);
}

unsigned int events_groups(void)
{
	return group_count;
}

bool events_count(unsigned int group, void (*fn)(void *arg), void *arg)
{
	if (tl_counters_begin(&groups[group]))
		return false;
	fn(arg);
	return !tl_counters_end(&groups[group], &last) && last.counted > WHOLE;
}

void events_print(unsigned int group)
{
	printf("\"events\": {");
	for (unsigned int event = 0; event < groups[group].count; event++) {
		uint64_t count = both_modes(event);
		uint64_t own = empty[group][event];

		printf("%s\"%s\": %" PRIu64, event ? ", " : "", groups[group].events[event].name,
		       count > own ? count - own : 0);
	}
	printf("}");
}
