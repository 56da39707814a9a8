// SPDX-License-Identifier: GPL-2.0-only
/*
 * Starts and stops events: parses the words that the user chose, makes the rings that their events
 * go to, and puts probes in place after the rings are there. This file owns the order and the
 * rings. event_tracepoint.c and event_kprobe.c own the probes.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/build_bug.h>
#include <linux/errno.h>
#include <linux/gfp.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/printk.h>
#include <linux/security.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/topology.h>
#include <linux/tracepoint.h>

#include "limits.h"
#include "probe/event.h"
#include "probe/event_write.h"

static_assert(sizeof(struct tlk_probe_event) == 64);
static_assert(offsetof(struct tlk_probe_ring, event) == 64);

static unsigned int events_kb = 1024;
module_param(events_kb, uint, 0644);
MODULE_PARM_DESC(events_kb, "Memory for each CPU's events, KiB: a power of two from 64 to 4096");

DEFINE_PER_CPU(struct tlk_event_cpu, tlk_event_cpu);
u32 tlk_event_slots;

/* Only the one caller changes this, and probes are armed after what they read is in place. */
static struct {
	char (*place)[TLK_EVENT_PLACE_BYTES];
	struct tlk_event_source *sources;
	u64 *rings;		/* addresses, by CPU number */
	u32 places;		/* places that have a text */
	u32 armed;		/* sources whose probe is in place, from the first on */
	unsigned int order;	/* of a ring's pages */
} events;

static int refuse(const char *word, const char *why)
{
	pr_err("events: '%s': %s\n", word, why);
	return -EINVAL;
}

static void rings_free(void)
{
	unsigned int cpu;

	if (!events.rings)
		return;
	for_each_possible_cpu(cpu) {
		free_pages(events.rings[cpu], events.order);
		per_cpu(tlk_event_cpu, cpu) = (struct tlk_event_cpu) { };
	}
	kfree(events.rings);
	events.rings = NULL;
}

static int ring_alloc(unsigned int cpu)
{
	const gfp_t flags = GFP_KERNEL | __GFP_ZERO | __GFP_NOWARN | __GFP_RETRY_MAYFAIL;
	struct page *pages = alloc_pages_node(cpu_to_node(cpu), flags, events.order);

	if (!pages)
		return -ENOMEM;
	events.rings[cpu] = (uintptr_t)page_address(pages);
	per_cpu(tlk_event_cpu, cpu).ring = page_address(pages);
	return 0;
}

/* Every CPU that is possible gets a ring: one that comes online later has it already. */
static int rings_alloc(void)
{
	const unsigned int kb = READ_ONCE(events_kb);
	unsigned int cpu;

	if (!is_power_of_2(kb) || kb < TLK_EVENT_KB_MIN || kb > TLK_EVENT_KB_MAX ||
	    kb > TLK_EVENT_TOTAL_KB_MAX / num_possible_cpus()) {
		pr_err("events_kb=%u: give a power of two from %u to %u, and no more than %u for "
		       "%u CPUs together\n", kb, TLK_EVENT_KB_MIN, TLK_EVENT_KB_MAX,
		       TLK_EVENT_TOTAL_KB_MAX, num_possible_cpus());
		return -EINVAL;
	}
	events.order = get_order(kb * 1024ul);
	tlk_event_slots = (kb * 1024ul - sizeof(struct tlk_probe_ring)) /
			  sizeof(struct tlk_probe_event);
	events.rings = kcalloc(nr_cpu_ids, sizeof(*events.rings), GFP_KERNEL);
	if (!events.rings)
		return -ENOMEM;
	for_each_possible_cpu(cpu) {
		if (ring_alloc(cpu)) {
			pr_err("events: no %u KiB in one piece for CPU %u: make events_kb "
			       "smaller\n", kb, cpu);
			rings_free();
			return -ENOMEM;
		}
	}
	return 0;
}

static int word_parse(const char *word)
{
	struct tlk_event_source *source = &events.sources[events.places];
	char *text = events.place[events.places];
	u32 i;

	source->place = events.places;
	if (!tlk_event_tracepoint_parse(source, word, text)) {
		switch (tlk_event_kprobe_parse(source, word)) {
		case 0:
			strscpy(text, word, TLK_EVENT_PLACE_BYTES);
			break;
		case -E2BIG:
			return refuse(word, "more than 6 values, or more than 63 characters");
		default:
			return refuse(word, "is neither a tracepoint of the list nor of "
					    "the form symbol+0x10:di:0x18(si)");
		}
	}
	for (i = 0; i < events.places; i++)
		if (!strcmp(events.place[i], text))
			return refuse(word, "is there twice");
	events.places++;
	return 0;
}

static void words_free(void)
{
	kfree(events.sources);
	kfree(events.place);
	events.sources = NULL;
	events.place = NULL;
	events.places = 0;
}

static int words_parse(const char *spec)
{
	char *copy = kstrdup(spec, GFP_KERNEL), *rest = copy, *word;
	int error = 0;

	events.place = kcalloc(TLK_EVENT_PLACES_MAX, sizeof(*events.place), GFP_KERNEL);
	events.sources = kcalloc(TLK_EVENT_PLACES_MAX, sizeof(*events.sources), GFP_KERNEL);
	if (!copy || !events.place || !events.sources)
		error = -ENOMEM;
	while (!error && (word = strsep(&rest, ","))) {
		word = strim(word);
		if (!*word)
			continue;
		if (events.places == TLK_EVENT_PLACES_MAX)
			error = refuse(word, "is one place too many");
		else
			error = word_parse(word);
	}
	if (!error && !events.places) {
		pr_err("events: no place is chosen; for example events=sched_switch,vfs_read:dx\n");
		error = -EINVAL;
	}
	kfree(copy);
	if (error)
		words_free();
	return error;
}

static int arm(struct tlk_event_source *source)
{
	const char *place = events.place[source->place];
	int error = source->row ? tlk_event_tracepoint_arm(source) :
				    tlk_event_kprobe_arm(source);

	switch (error) {
	case 0:
	case -ENOMEM:
		return error;
	case -ENOENT:
		return refuse(place, "this kernel has no such tracepoint or function");
	default:
		return refuse(place, "the kernel takes no probe there: no beginning of an "
				     "instruction, or code that probes themselves need");
	}
}

static void disarm_all(void)
{
	while (events.armed) {
		struct tlk_event_source *source = &events.sources[--events.armed];

		if (source->row)
			tlk_event_tracepoint_disarm(source);
		else
			tlk_event_kprobe_disarm(source);
	}
	tracepoint_synchronize_unregister();
}

int tlk_event_start(const char *spec, struct tlk_event_map *map)
{
	int error;

	if (security_locked_down(LOCKDOWN_KPROBES)) {
		pr_err("no events: the kernel is locked down\n");
		return -EPERM;
	}
	error = words_parse(spec ? spec : "");
	if (error)
		return error;
	error = rings_alloc();
	if (error)
		goto err_words;
	for (; events.armed < events.places; events.armed++) {
		error = arm(&events.sources[events.armed]);
		if (error)
			goto err_probes;
	}
	*map = (struct tlk_event_map) {
		.rings = (uintptr_t)events.rings,
		.place = (uintptr_t)events.place,
		.ring_events = tlk_event_slots,
		.event_bytes = sizeof(struct tlk_probe_event),
		.places = events.places,
	};
	return 0;

err_probes:
	disarm_all();
	rings_free();
err_words:
	words_free();
	return error;
}

void tlk_event_stop(void)
{
	disarm_all();
	rings_free();
	words_free();
}
