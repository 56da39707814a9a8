/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * getpid by the trap of 32-bit programs, `int $0x80`, to be timed beside that of 64-bit ones. Where
 * the kernel has no such calls, that is said and the rest goes on.
 */
#ifndef ESTIMATE_INT80_H
#define ESTIMATE_INT80_H

#include <stdbool.h>

#include "subjects.h"

#define INT80_CALLS 16u		/* of one sample: where a hypervisor sees the trap, it takes long */

/* Whether the kernel answers; if not, it has printed a row that says so. */
bool int80_works(void);
void int80_run(const struct subject *subject, unsigned int calls);

#endif /* ESTIMATE_INT80_H */
