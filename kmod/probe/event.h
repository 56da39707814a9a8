/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Events: what happens at places in the kernel that the user chose, with the time and a few values,
 * in rings that an observer reads out of this machine's memory. This header owns how events start
 * and stop; layout.h owns the rings.
 */
#ifndef TLK_PROBE_EVENT_H
#define TLK_PROBE_EVENT_H

#include <linux/types.h>

/*
 * The addresses by which an observer finds rings and names: struct tlk_probe_map has the same
 * fields.
 */
struct tlk_event_map {
	u64 rings;		/* virtual: u64 address of a ring by CPU number, 0 of none */
	u64 place;		/* virtual: char[TLK_EVENT_PLACE_BYTES], by number of the place */
	u32 ring_events;	/* slots of a ring */
	u32 event_bytes;
	u32 places;
};

/*
 * Places probes as `spec` says and fills the map. A spec is a list of words, separated by commas:
 *   sched_switch                  a tracepoint of the list in event_tracepoint.c
 *   vfs_read:file=di:count=dx     a function, with values: registers as struct pt_regs calls them,
 *   schedule+0x10:0x18(bx)        or words of the kernel's memory at a distance from one
 * Returns 0, or -EINVAL with a line in the log that names the word, -ENOMEM, -EPERM (lockdown). The
 * caller lets one thread in at a time, here and below.
 */
int tlk_event_start(const char *spec, struct tlk_event_map *map);

/* Takes all probes away and frees the rings. No observer may be told of the map any more. */
void tlk_event_stop(void);

#endif /* TLK_PROBE_EVENT_H */
