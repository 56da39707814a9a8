/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Which units of the guest's memory (lines, pages) were touched: a stamp for each, exact, and
 * emptied by counting the stamp up. Owns nothing of caches and TLBs, which structure.c has.
 */
#include "structure.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A visit is of one mode by itself; over a whole run the kernel's stamps are behind the user's. */
static size_t stamps(const struct tlm_structure *footprint)
{
	return footprint->geometry.size * (footprint->geometry.crossing ? 1 : 2);
}

int tlm_footprint_init(struct tlm_structure *footprint, uint64_t memory, char error[TLM_ERROR_MAX])
{
	struct tlm_geometry *geometry = &footprint->geometry;
	uint32_t unit = geometry->line;

	if (unit < 16 || unit > 1 << TLM_PAGE_BITS || (unit & (unit - 1)) != 0) {
		snprintf(error, TLM_ERROR_MAX,
			 "%s: unit=%u bytes, must be a power of two from 16 to %d", geometry->name,
			 unit, 1 << TLM_PAGE_BITS);
		return -EINVAL;
	}
	if (memory == 0) {
		snprintf(error, TLM_ERROR_MAX, "%s: a line `memory BYTES` must come before it",
			 geometry->name);
		return -EINVAL;
	}
	footprint->line_bits = __builtin_ctz(unit);
	geometry->size = (memory + unit - 1) / unit;
	footprint->stamps = calloc(stamps(footprint), sizeof(footprint->stamps[0]));
	if (!footprint->stamps) {
		snprintf(error, TLM_ERROR_MAX, "%s: no memory for its stamps", geometry->name);
		return -ENOMEM;
	}
	footprint->stamp = 1;
	return 0;
}

void tlm_footprint_deinit(struct tlm_structure *footprint)
{
	free(footprint->stamps);
	footprint->stamps = NULL;
}

void tlm_footprint_cold(struct tlm_structure *footprint)
{
	if (++footprint->stamp != 0)
		return;
	memset(footprint->stamps, 0, stamps(footprint) * sizeof(footprint->stamps[0]));
	footprint->stamp = 1;
}

void tlm_footprint_run(struct tlm_structure *footprint, const struct tlm_chunk *chunk)
{
	const struct tlm_geometry *geometry = &footprint->geometry;
	struct tlm_counts *counts = &footprint->counts;
	size_t i;

	for (i = 0; i < chunk->count; i++) {
		uint64_t access = chunk->access[i], unit;
		unsigned int kind = access & ((1 << TLM_KIND_BITS) - 1);
		bool kernel = access & TLM_KERNEL;

		if (geometry->crossing && kernel != footprint->kernel)
			tlm_footprint_cold(footprint);
		footprint->kernel = kernel;
		unit = chunk->physical[i] >> footprint->line_bits;
		if (!(access & geometry->from) || unit >= geometry->size)
			continue;
		counts->references[kind]++;
		if (kernel && !geometry->crossing)
			unit += geometry->size;
		if (footprint->stamps[unit] == footprint->stamp)
			continue;
		footprint->stamps[unit] = footprint->stamp;
		counts->misses[kind]++;
	}
}
