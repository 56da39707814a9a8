/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Probes: what a CPU does, kept in memory for an observer who reads it from outside (`trapless
 * peek`; Yamanouchi and Tada, section 5.2.1 and figure 4). Nothing here is ever read by the module.
 * This header owns the layout that observers find by the symbol `tlk_probe_map`; its twin is
 * trapless/peek/sampling/tier1.py. Numbers are little-endian, addresses virtual.
 */
#ifndef TLK_PROBE_H
#define TLK_PROBE_H

#include <linux/cache.h>
#include <linux/types.h>

/* What may be kept: bits of the module parameter `probes` and of tlk_probe_map.active. */
#define TLK_PROBE_MODES		1u	/* user mode or kernel, and why the kernel was entered */
#define TLK_PROBE_INTERRUPTS	2u	/* whether interrupts are disabled, and by whom */
#define TLK_PROBE_COUNTS	4u	/* how often each place disabled them; needs the above */
#define TLK_PROBE_EVENTS	8u	/* a trace of chosen events (probe/event.c) */
#define TLK_PROBE_ALL		15u

/*
 * One for each CPU. `state` is written by one instruction, so a reader never sees half of it:
 * one of the values below, or the address of the kernel's code that disabled interrupts - where
 * that was a lock function, the address in its caller.
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
	u32 count;		/* of TLK_SITE_DISABLE, on all CPUs: plain increments, so that two
				 * CPUs at the same time may count one */
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

extern struct tlk_probe_map tlk_probe_map;

/* Starts what the module parameter asks for; 0 or an error, which is logged. */
int tlk_probe_init(void);
void tlk_probe_exit(void);

#endif /* TLK_PROBE_H */
