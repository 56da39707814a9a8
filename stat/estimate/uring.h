/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * io_uring's own no-operation and read, to be timed beside batches. This header owns nothing else
 * of io_uring; where it is absent or forbidden, that is said and the rest goes on.
 */
#ifndef ESTIMATE_URING_H
#define ESTIMATE_URING_H

#include "subjects.h"

enum { URING_NOP, URING_READ };

/* 0, or -errno after a row that says why there is none. Asked again, it answers the same. */
int uring_open(int file);
void uring_run(const struct subject *subject, unsigned int calls);

#endif /* ESTIMATE_URING_H */
