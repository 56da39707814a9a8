/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Programs: batches whose requests take results and words of memory as arguments, and jump. This
 * header owns the way in; ring.h owns the memory.
 */
#ifndef TLK_PROGRAM_H
#define TLK_PROGRAM_H

#include "ring/ring.h"

/* TL_ENTER_PROGRAM. */
long tlk_program_enter(struct tlk_ring *ring, struct file *file, unsigned long argument);

#endif /* TLK_PROGRAM_H */
