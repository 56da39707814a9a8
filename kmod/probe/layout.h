/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The memory that observers read from outside (`trapless peek`; Yamanouchi and Tada, section 5.2.1
 * and figure 4): what a CPU does, and events. This header owns the layout, which observers find by
 * the symbol `tlk_probe_map`. The module never reads it. Its twins are
 * probes.py, sites.py and tier1.py of trapless/peek/sampling/, and trapless/peek/trace/rings.py.
 * Numbers are little-endian, addresses virtual.
 */
#ifndef TLK_PROBE_LAYOUT_H
#define TLK_PROBE_LAYOUT_H

#include <linux/cache.h>
#include <linux/types.h>
#include <asm/local.h>

/* What can be kept: bits of the module parameter `probes` and of tlk_probe_map.active. */
#define TLK_PROBE_MODES		1u	/* user mode or kernel, and why the kernel was entered */
#define TLK_PROBE_INTERRUPTS	2u	/* whether interrupts are disabled, and by whom */
#define TLK_PROBE_COUNTS	4u	/* how often each place disabled them; needs the above */
#define TLK_PROBE_EVENTS	8u	/* a trace of chosen events (event.c) */
#define TLK_PROBE_ALL		15u

/*
 * The record of one CPU. `state` is written by one instruction, so a reader never sees half of it.
 * It is one of the values below, or the address of the kernel's code that disabled interrupts;
 * where a lock function did, the address in its caller.
 */
#define TLK_STATE_KERNEL	0	/* interrupts are enabled */
#define TLK_STATE_USER		1
#define TLK_STATE_ENTERED	2	/* from user mode, interrupts not enabled since */

#define TLK_ENTRY_CALL		1u	/* a system call */
#define TLK_ENTRY_EXCEPTION	2u	/* an interrupt or an exception */
#define TLK_ENTRY_SIGNAL	3u	/* one of these, and a signal was delivered since */

struct tlk_probe_record {
	u64 state;
	u32 entry;		/* why the kernel was entered from user mode the last time */
	u32 reserved;
	u64 reserved2[6];
} ____cacheline_aligned;

enum tlk_site_kind {
	TLK_SITE_DISABLE,	/* cli */
	TLK_SITE_ENABLE,	/* sti */
	TLK_SITE_ENTER_USER,
	TLK_SITE_LEAVE_USER,
};

/* A patched place of the kernel's code. */
struct tlk_probe_site {
	u64 address;
	u32 kind;		/* enum tlk_site_kind */
	u32 count;		/* of TLK_SITE_DISABLE, on all CPUs: plain increments, so that
				 * two CPUs that come at the same time may count once */
};

struct tlk_probe_map {
	char magic[8];		/* "TLPROBE1", without a zero at the end */
	u32 size;		/* of this structure */
	u32 active;		/* TLK_PROBE_... */
	u32 sites;		/* entries at `site` */
	u32 record_bytes;
	u64 records;		/* per-CPU address of struct tlk_probe_record */
	u64 site;		/* struct tlk_probe_site[sites] */
	u64 rings;		/* u64[cpus]: struct tlk_probe_ring of each CPU; 0 where there is
				 * none. 0 itself while there are no events */
	u32 cpus;
	u32 ring_events;	/* entries of each ring */
	u32 event_bytes;
	u32 places;		/* entries at `place` */
	u64 place;		/* char[64][places]: names of places */
};

#define TLK_EVENT_VALUES 6u
#define TLK_EVENT_PLACE_BYTES 64u

struct tlk_probe_event {
	u64 t_ns;		/* CLOCK_MONOTONIC */
	u32 place;
	u32 pid;
	u64 value[TLK_EVENT_VALUES];
};

/* The ring of one CPU, in one piece of the direct map. Only that CPU writes it. */
struct tlk_probe_ring {
	u64 head;		/* events written ever; event i is in slot i % ring_events */
	local_t dropped;	/* events that came while one was being written */
	u64 reserved[6];
	struct tlk_probe_event event[];
};

#endif /* TLK_PROBE_LAYOUT_H */
