/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Probes: what the kernel does is kept in memory for an observer who reads it from outside. This
 * header owns how probes begin and end with the module; layout.h owns what the observer reads.
 */
#ifndef TLK_PROBE_H
#define TLK_PROBE_H

#include <linux/types.h>

/*
 * Starts what the module parameter asks for. Returns 0 or an error, which is logged. Where
 * supervisor mode is offered, probes of user mode and interrupts are refused.
 */
int tlk_probe_init(bool supervisor_is_offered);
void tlk_probe_exit(void);

/*
 * Takes back what tlk_probe_init() has started, where the load fails later. Returns whether nothing
 * is left, so that the module may go.
 */
bool tlk_probe_abandon(void);

#endif /* TLK_PROBE_H */
