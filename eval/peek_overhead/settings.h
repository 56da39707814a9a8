/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The settings that the observed program (bandwidth.c) announces and that its observer (sweep.c)
 * follows: what is read, how fast, and how much. It owns the numbers; eval/tools/common/announce.h
 * owns the pages in which they are handed over.
 */
#ifndef EVAL_PEEK_OVERHEAD_SETTINGS_H
#define EVAL_PEEK_OVERHEAD_SETTINGS_H

#include <stdint.h>

#define REGION_BYTES_MAX (1u << 20)
#define REGIONS_BYTES (2 * REGION_BYTES_MAX)	/* the one that both use, and the other */
#define PIECE_BYTES 2048u	/* most of one read, as in the paper */
#define PACED_NS 100000u	/* from one read to the next when paced: as a recording's samples */

enum reads {
	READS_NONE,
	READS_OTHER,	/* back to back, of a region that nobody touches */
	READS_PACED,	/* of the same region, one piece each PACED_NS */
	READS_SAME,	/* of the same region, back to back */
	READS,
};

static inline uint64_t settings_pack(enum reads reads, uint32_t bytes)
{
	return (uint64_t)bytes << 8 | reads;
}

static inline enum reads settings_reads(uint64_t setting)
{
	return setting & 0xff;
}

static inline uint32_t settings_bytes(uint64_t setting)
{
	return (uint32_t)(setting >> 8);
}

#endif /* EVAL_PEEK_OVERHEAD_SETTINGS_H */
