/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The distinct units of memory (lines or pages) that were touched. A footprint's misses are these
 * units: it forgets nothing until it is emptied. It also declares what every structure is given and
 * gives: a chunk of accesses, and counts.
 */
#ifndef TRAPLESS_MODEL_FOOTPRINT_H
#define TRAPLESS_MODEL_FOOTPRINT_H

#include "geometry.h"

#include <stddef.h>

struct tlm_counts {
	uint64_t references[1 << TLM_KIND_BITS]; /* by TLM_READ, _WRITE or _FETCH, and TLM_KERNEL */
	uint64_t misses[1 << TLM_KIND_BITS];
	uint64_t prefetches[2]; /* lines brought in ahead, by user and by kernel accesses */
};

/* Accesses on their way through the structures, in order. */
struct tlm_chunk {
	size_t count;
	const uint64_t *virtual;
	const uint64_t *physical;
	uint64_t *access;
};

struct tlm_footprint {
	unsigned int unit_bits;
	uint32_t *stamps; /* one for each unit, which was touched if it equals `stamp` */
	size_t number;	/* of stamps */
	uint32_t stamp;
	bool kernel;	/* whether the kernel made the latest access */
};

/*
 * Make an empty footprint of a machine's memory, and note its size in the geometry. Return 0, or
 * -EINVAL or -ENOMEM with the reason in `error`.
 */
int tlm_footprint_init(struct tlm_footprint *footprint, struct tlm_geometry *geometry,
		       uint64_t memory, char error[TLM_ERROR_MAX]);
void tlm_footprint_deinit(struct tlm_footprint *footprint);

/* Count those accesses of the chunk that the geometry asks for. */
void tlm_footprint_run(struct tlm_footprint *footprint, const struct tlm_geometry *geometry,
		       const struct tlm_chunk *chunk, struct tlm_counts *counts);

/* Empty it: all units count as untouched again. */
void tlm_footprint_cold(struct tlm_footprint *footprint);

#endif
