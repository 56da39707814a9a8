/* SPDX-License-Identifier: GPL-2.0-only */
/* The list of switched processes (TL_IOC_PROCESSES). This header owns nothing else. */
#ifndef TLK_SUPERVISOR_LIST_H
#define TLK_SUPERVISOR_LIST_H

#include <linux/trapless.h>

/*
 * Fills in at most `count` entries, which are zero, and returns how many there are for the caller
 * to see. The last one has pid 0: the counts of all processes that are gone.
 */
u32 tlk_processes_list(struct tl_process *entries, u32 count);

#endif /* TLK_SUPERVISOR_LIST_H */
