/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Probes record in memory what the kernel does, for an observer who reads it from outside. This
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
 * Undoes tlk_probe_init() where the load fails later. Returns true if nothing is left, so that the
 * module may be freed.
 */
bool tlk_probe_abandon(void);

#endif /* TLK_PROBE_H */
