/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The places of the kernel's code that probes go to, found in the code itself and checked. This
 * header owns what is known of a place; patch.h owns its change.
 */
#ifndef TLK_PROBE_SITE_H
#define TLK_PROBE_SITE_H

#include <linux/types.h>

#include "probe/layout.h"

#define TLK_SITES_MAX 2048

struct tlk_site_code {
	u8 *at;
	u8 length;		/* of what makes room: execution goes on behind it */
	bool is_entry;		/* sti: the first one of a system call */
	bool may_nest;		/* cli: interrupts may be disabled already */
	bool flags_in_rax;	/* cli: and %rax has the flags from before */
	u16 depth;		/* cli of a lock function: from %rsp to the return address, + 1 */
	u8 *detour;		/* 5 bytes that never run, for a site of 2: or NULL */
};

struct tlk_sites {
	u32 count;
	u32 left_out;		/* cli and sti that did not pass a check */
	struct tlk_site_code code[TLK_SITES_MAX];
};

/* The same places for observers: entry i is the place of code[i]. */
extern struct tlk_probe_site tlk_probe_sites[TLK_SITES_MAX];

/*
 * Fills `sites` with the places for `what` (TLK_PROBE_MODES or more). Returns 0, or -EOPNOTSUPP
 * with `why` where this kernel has none. Only reads code.
 */
int tlk_sites_find(struct tlk_sites *sites, u32 what, const char **why);

/* Whether the code of each place is still what was found: no kprobe has come to one meanwhile. */
bool tlk_sites_are_unchanged(const struct tlk_sites *sites);

#endif /* TLK_PROBE_SITE_H */
