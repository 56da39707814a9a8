/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How often the kernel disabled interrupts at a place that has a probe, while the module counts
 * that (TLK_PROBE_COUNTS of kmod/probe/layout.h). Read from the kernel's memory as an observer
 * would, but from inside, where it is certain when.
 */
#ifndef EVAL_PEEK_OVERHEAD_HITS_H
#define EVAL_PEEK_OVERHEAD_HITS_H

#include <stdint.h>

/* The sum over all places, from when counting began. Ends the program where it cannot be read. */
uint64_t hits_made(void);

#endif /* EVAL_PEEK_OVERHEAD_HITS_H */
