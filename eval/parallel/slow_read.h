/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Is the requester blocked while a requested call waits for a disk? See slow_read.c.
 */
#ifndef EVAL_SLOW_READ_H
#define EVAL_SLOW_READ_H

/* Reads `device` (destroying what is on it) by each way; prints a row each, `repeats` times. */
void slow_read(const char *device, unsigned int workers, unsigned int repeats);

#endif /* EVAL_SLOW_READ_H */
