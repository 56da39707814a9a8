/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The memory of events as an observer reads it. Twin of trapless/peek/trace/rings.py.
 */
#ifndef TLK_PROBE_EVENT_LAYOUT_H
#define TLK_PROBE_EVENT_LAYOUT_H

#include <linux/types.h>
#include <asm/local.h>

#define TLK_EVENT_VALUES 6u
#define TLK_EVENT_PLACE_BYTES 64u

struct tlk_probe_event {
	u64 t_ns;		/* CLOCK_MONOTONIC */
	u32 place;
	u32 pid;
	u64 value[TLK_EVENT_VALUES];
};

/* In one piece of the direct map. Written by its CPU only. */
struct tlk_probe_ring {
	u64 head;		/* events written ever; event i is in slot i % ring_events */
	local_t dropped;	/* events inside the writing of an event, not written */
	u64 reserved[6];
	struct tlk_probe_event event[];
};

#endif /* TLK_PROBE_EVENT_LAYOUT_H */
