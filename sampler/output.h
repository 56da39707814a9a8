/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * output.h - takes rows from the sampling thread without ever making it wait, and writes them in
 * blocks from a thread of its own. A fixed number of blocks lies between the two; when a slow
 * output has filled them all, there is no place for a row, and the caller counts it as lost.
 *
 * output_row, output_commit and output_failed belong to the sampling thread.
 */
#ifndef SAMPLER_OUTPUT_H
#define SAMPLER_OUTPUT_H

#include <stdint.h>

#include "row.h"

struct output;

/* Writes the head; 0 or -errno. The descriptor stays the caller's. */
int output_create(struct output **output, int descriptor, const char *text, uint32_t row_bytes);

/* Where the next row goes (all zeros), or NULL: no place. */
uint8_t *output_row(struct output *output);

/* The row is complete. `linger_ns`: no other will be before that time has passed. */
void output_commit(struct output *output, uint64_t now_ns, uint64_t linger_ns);

/* 0, or -errno: the output took no more. */
int output_failed(const struct output *output);

/* Writes what is left and, unless NULL, the end; frees. 0 or -errno. */
int output_destroy(struct output *output, const struct stream_end *end);

#endif
