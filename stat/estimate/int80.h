/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * getpid by the trap of 32-bit programs, `int $0x80`, and whether the kernel answers it.
 * Experiments that cross by this trap ask here, too.
 */
#ifndef ESTIMATE_INT80_H
#define ESTIMATE_INT80_H

#include <stdbool.h>

/* A kernel without 32-bit calls answers `int $0x80` with a fault. */
bool int80_works(void);
/* Makes so many calls of getpid. Returns whether each had a result. */
bool int80_getpids(unsigned int calls);

#endif /* ESTIMATE_INT80_H */
