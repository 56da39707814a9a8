/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Puts probes into the kernel's code and takes them out again. This header owns the two functions;
 * site.h owns the places.
 */
#ifndef TLK_PROBE_PATCH_H
#define TLK_PROBE_PATCH_H

#include "probe/site.h"

/*
 * Makes every place jump to its thunk. Returns 0, or an error, and then nothing is changed. Sleeps.
 * The caller lets one thread in at a time, here and below.
 */
int tlk_probes_insert(const struct tlk_sites *sites, u8 *const *thunks);

/*
 * Gives every place its own code back and waits until no CPU and no task is in a thunk. Returns 0;
 * or how many places somebody else has changed since, and then nothing is changed.
 */
u32 tlk_probes_remove(void);

#endif /* TLK_PROBE_PATCH_H */
