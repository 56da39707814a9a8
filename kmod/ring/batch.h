/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Batches: the calling thread makes its own requests, in order, in one crossing. This header owns
 * the entry; ring.h owns the memory.
 */
#ifndef TLK_BATCH_H
#define TLK_BATCH_H

#include "ring/ring.h"

/* TL_ENTER_BATCH. */
long tlk_batch_enter(struct tlk_ring *ring, struct file *file);

#endif /* TLK_BATCH_H */
