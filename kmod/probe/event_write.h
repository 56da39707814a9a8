/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shared by the files of events: a source of events (a probe at a place), and how an event gets
 * into the ring of its CPU. This header owns the writing; layout.h owns the ring's layout.
 *
 * A ring has one writer, its CPU with interrupts off, so events are in the order of their times. An
 * NMI (or a breakpoint) that comes while one is being written finds `busy` set and is counted as
 * dropped instead. Readers are outside: they see an event when `head` says that it is there.
 */
#ifndef TLK_PROBE_EVENT_WRITE_H
#define TLK_PROBE_EVENT_WRITE_H

#include <linux/irqflags.h>
#include <linux/kernel.h>
#include <linux/kprobes.h>
#include <linux/percpu.h>
#include <linux/sched.h>
#include <linux/timekeeping.h>
#include <linux/tracepoint.h>
#include <asm/barrier.h>
#include <asm/local.h>

#include "probe/layout.h"

struct tlk_event_cpu {
	struct tlk_probe_ring *ring;
	u32 slot;		/* where the next event goes */
	bool busy;
};

DECLARE_PER_CPU(struct tlk_event_cpu, tlk_event_cpu);

/* How many slots every ring has. It does not change while a probe is in place. */
extern u32 tlk_event_slots;

/* A register, or a word of memory at a distance from one. */
struct tlk_event_operand {
	long distance;
	u16 reg;		/* offset in struct pt_regs */
	bool is_memory;
};

struct tlk_event_row;

/* One probe at one place: a tracepoint if it has a row, else a kprobe. */
struct tlk_event_source {
	const struct tlk_event_row *row;
	struct kprobe probe;
	char symbol[TLK_EVENT_PLACE_BYTES];
	struct tlk_event_operand operands[TLK_EVENT_VALUES];
	u32 operand_count;
	u32 place;
};

/* Writes what the observer sees of the place to `text`. Returns false if no row has the name. */
bool tlk_event_tracepoint_parse(struct tlk_event_source *source, const char *word, char *text);
int tlk_event_tracepoint_arm(struct tlk_event_source *source);
void tlk_event_tracepoint_disarm(struct tlk_event_source *source);

/* The text is the word itself. */
int tlk_event_kprobe_parse(struct tlk_event_source *source, const char *word);
int tlk_event_kprobe_arm(struct tlk_event_source *source);
void tlk_event_kprobe_disarm(struct tlk_event_source *source);

/* May run in any context. Values that the place does not have keep what the slot had before. */
static __always_inline void tlk_event_write_values(u32 place, const u64 *values, u32 count)
{
	struct tlk_probe_event *event;
	struct tlk_event_cpu *cpu;
	struct tlk_probe_ring *ring;
	unsigned long flags;
	u32 i;

	raw_local_irq_save(flags);
	cpu = raw_cpu_ptr(&tlk_event_cpu);
	ring = cpu->ring;
	if (unlikely(cpu->busy)) {
		local_inc(&ring->dropped);
		goto out;
	}
	WRITE_ONCE(cpu->busy, true);
	barrier();	/* with whoever interrupts this */
	event = &ring->event[cpu->slot];
	event->t_ns = ktime_get_mono_fast_ns();
	event->place = place;
	event->pid = current->pid;
	for (i = 0; i < count; i++)
		event->value[i] = values[i];
	cpu->slot = cpu->slot + 1 == tlk_event_slots ? 0 : cpu->slot + 1;
	smp_store_release(&ring->head, ring->head + 1);	/* the observer reads head first */
	barrier();
	WRITE_ONCE(cpu->busy, false);
out:
	raw_local_irq_restore(flags);
}

#endif /* TLK_PROBE_EVENT_WRITE_H */
