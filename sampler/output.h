/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Declares the output, which takes rows from the sampling thread without ever blocking it, and
 * writes them from a thread of its own. A fixed number of blocks lies between the two; when a slow
 * reader has let them all fill, there is no place for a row, and the caller counts it as lost.
 *
 * Only the sampling thread calls these functions.
 */
#ifndef SAMPLER_OUTPUT_H
#define SAMPLER_OUTPUT_H

#include <stdint.h>

#include "row.h"

struct output;

/* Writes the head; 0 or -errno. A row comes each interval. The caller closes the descriptor. */
int output_create(struct output **output, int descriptor, const char *text, uint32_t row_bytes,
		  uint64_t interval_ns);

/* The place of the next row, filled with zeros; NULL where there is none. */
uint8_t *output_row(struct output *output);

/* Hands the row over. `linger_ns`: the next row comes after that time at the earliest. */
void output_commit(struct output *output, uint64_t now_ns, uint64_t linger_ns);

/* 0, or -errno: the output took no more. */
int output_failed(const struct output *output);

/* Writes the remaining rows and, unless NULL, the end; frees. 0 or -errno. */
int output_destroy(struct output *output, const struct stream_end *end);

#endif
