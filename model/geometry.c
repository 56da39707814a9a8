// SPDX-License-Identifier: GPL-2.0-only
/*
 * Checks which caches and TLBs can exist, and says why others cannot. It owns no contents.
 */
#include "geometry.h"

#include <errno.h>
#include <stdio.h>

static bool power_of_two(uint64_t value)
{
	return value != 0 && (value & (value - 1)) == 0;
}

static int check_size(const struct tlm_geometry *geometry, uint64_t memory, char *error)
{
	const char *name = geometry->name;
	bool cache = geometry->kind == TLM_CACHE;
	uint64_t way = (uint64_t)geometry->ways * (cache ? geometry->line : 1);
	uint64_t size = geometry->size;

	if (geometry->ways == 0 || geometry->ways > TLM_WAYS_MAX)
		return snprintf(error, TLM_ERROR_MAX, "%s: ways=%u, must be 1 to %d", name,
				geometry->ways, TLM_WAYS_MAX);
	if (cache && (!power_of_two(geometry->line) || geometry->line < 16 ||
		      geometry->line > 1 << TLM_PAGE_BITS))
		return snprintf(error, TLM_ERROR_MAX,
				"%s: line=%u bytes, must be a power of two from 16 to %d", name,
				geometry->line, 1 << TLM_PAGE_BITS);
	if (cache && memory != 0 && size > memory)
		return snprintf(error, TLM_ERROR_MAX,
				"%s: size=%llu bytes is more than the machine's memory of %llu",
				name, (unsigned long long)size, (unsigned long long)memory);
	if (size == 0 || size % way != 0 || !power_of_two(size / way))
		return snprintf(error, TLM_ERROR_MAX,
				"%s: size=%llu is not ways=%u%s times a power of two", name,
				(unsigned long long)size, geometry->ways,
				cache ? " times line" : "");
	if (size / way > TLM_SETS_MAX)
		return snprintf(error, TLM_ERROR_MAX, "%s: %llu sets, at most %u are modelled",
				name, (unsigned long long)(size / way), TLM_SETS_MAX);
	return 0;
}

int tlm_geometry_check(const struct tlm_geometry *geometry, uint64_t memory,
		       char error[TLM_ERROR_MAX])
{
	const char *name = geometry->name;

	if (check_size(geometry, memory, error))
		return -EINVAL;
	if (geometry->policy == TLM_PLRU &&
	    (!power_of_two(geometry->ways) || geometry->ways > TLM_TREE_WAYS_MAX)) {
		snprintf(error, TLM_ERROR_MAX,
			 "%s: ways=%u: policy=plru needs a power of two, at most %d", name,
			 geometry->ways, TLM_TREE_WAYS_MAX);
		return -EINVAL;
	}
	if (geometry->streams > TLM_STREAMS_MAX || (geometry->streams && !geometry->ahead)) {
		snprintf(error, TLM_ERROR_MAX,
			 "%s: streams=%u ahead=%u: at most %d streams, at least 1 line ahead", name,
			 geometry->streams, geometry->ahead, TLM_STREAMS_MAX);
		return -EINVAL;
	}
	if (geometry->coherent &&
	    (geometry->kind != TLM_CACHE || geometry->streams || memory == 0 ||
	     geometry->line != TLM_COHERENT_LINE)) {
		snprintf(error, TLM_ERROR_MAX,
			 "%s: modes=coherent: only of caches with lines of %d bytes and without "
			 "streams, behind a line `memory BYTES`", name, TLM_COHERENT_LINE);
		return -EINVAL;
	}
	if (geometry->kind == TLM_TLB && geometry->pages == 0) {
		snprintf(error, TLM_ERROR_MAX, "%s: pages= names no page size", name);
		return -EINVAL;
	}
	return 0;
}
