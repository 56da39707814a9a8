// SPDX-License-Identifier: GPL-2.0-only
/*
 * Keeps one stamp for each unit of the guest's memory (a line or a page), equal to the current one
 * if the unit was touched. The stamps are exact; counting the current stamp up empties them. It
 * owns nothing of caches and TLBs.
 */
#include "footprint.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int tlm_footprint_init(struct tlm_footprint *footprint, struct tlm_geometry *geometry,
		       uint64_t memory, char error[TLM_ERROR_MAX])
{
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
	footprint->unit_bits = __builtin_ctz(unit);
	geometry->size = (memory + unit - 1) / unit;
	/* A visit is one mode's; over a whole run the kernel's stamps are behind the user's. */
	footprint->number = geometry->size * (geometry->crossing ? 1 : 2);
	footprint->stamps = calloc(footprint->number, sizeof(footprint->stamps[0]));
	if (!footprint->stamps) {
		snprintf(error, TLM_ERROR_MAX, "%s: no memory for its stamps", geometry->name);
		return -ENOMEM;
	}
	footprint->stamp = 1;
	return 0;
}

void tlm_footprint_deinit(struct tlm_footprint *footprint)
{
	free(footprint->stamps);
	footprint->stamps = NULL;
}

void tlm_footprint_cold(struct tlm_footprint *footprint)
{
	if (++footprint->stamp != 0)
		return;
	memset(footprint->stamps, 0, footprint->number * sizeof(footprint->stamps[0]));
	footprint->stamp = 1;
}

void tlm_footprint_run(struct tlm_footprint *footprint, const struct tlm_geometry *geometry,
		       const struct tlm_chunk *chunk, struct tlm_counts *counts)
{
	size_t i;

	for (i = 0; i < chunk->count; i++) {
		uint64_t access = chunk->access[i], unit;
		unsigned int kind = access & ((1 << TLM_KIND_BITS) - 1);
		bool kernel = access & TLM_KERNEL;

		if (geometry->crossing && kernel != footprint->kernel)
			tlm_footprint_cold(footprint);
		footprint->kernel = kernel;
		unit = chunk->physical[i] >> footprint->unit_bits;
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
