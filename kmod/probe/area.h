/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The room for thunks, for C and assembly. This header owns its size, which is enough for
 * TLK_SITES_MAX thunks of usual length.
 */
#ifndef TLK_PROBE_AREA_H
#define TLK_PROBE_AREA_H

#define TLK_PROBE_AREA_BYTES 65536

#ifndef __ASSEMBLER__
#include <linux/types.h>

extern u8 tlk_probe_area[TLK_PROBE_AREA_BYTES];
#endif

#endif /* TLK_PROBE_AREA_H */
