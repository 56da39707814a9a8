/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * One cache, translation look-aside buffer or footprint: its geometry, its contents and its counts.
 * Caches look at physical addresses, TLBs at virtual ones; both are sets of ways with a policy of
 * replacement. It does not own how structures feed each other (hierarchy.h), and it uses nothing of
 * the emulator.
 */
#ifndef TRAPLESS_MODEL_STRUCTURE_H
#define TRAPLESS_MODEL_STRUCTURE_H

#include "footprint.h"

struct tlm_stream {
	uint64_t page;
	uint64_t used;
	int32_t line; /* looked up last; -1: none yet */
};

/* The page whose stream was looked for last, and what was found. */
struct tlm_stream_answer {
	uint64_t page; /* 0: none yet */
	struct tlm_stream *stream; /* NULL: it has none */
};

/* What touching a way changes in its set's tree. */
struct tlm_path {
	uint64_t keep;
	uint64_t set;
};

struct tlm_structure {
	struct tlm_geometry geometry;
	struct tlm_counts counts;
	uint32_t sets;	/* apart: of each mode, the kernel's behind the user's */
	unsigned int line_bits;
	uint64_t *tags;	/* sets * ways, 0: empty; under LRU the latest first, the empty last */
	uint16_t *guesses; /* not under LRU; a number's way when it was last found, or another's */
	uint64_t guess_mask; /* guesses stand by the low bits of numbers of lines or pages */
	uint64_t *trees; /* under PLRU, a word a set */
	struct tlm_path *paths; /* under PLRU, of each way */
	uint64_t last[2]; /* tag touched last: touching it again changes nothing; apart: by mode */
	uint64_t random;
	bool holes;	/* a flush left empty ways before filled ones */
	uint64_t clock;	/* of the streams' use */
	struct tlm_stream *streams; /* apart: the kernel's behind the user's */
	struct tlm_stream_answer answers[2]; /* apart: by mode */
	struct tlm_footprint footprint; /* in place of the above, for a footprint's geometry */
};

/* 0, or -EINVAL or -ENOMEM with the reason in `error`. */
int tlm_structure_init(struct tlm_structure *structure, const struct tlm_geometry *geometry,
		       uint64_t memory, char error[TLM_ERROR_MAX]);
void tlm_structure_deinit(struct tlm_structure *structure);

/* Let the chunk's accesses that are for this structure pass; mark with `passed` what goes on. */
void tlm_structure_run(struct tlm_structure *structure, const struct tlm_chunk *chunk,
		       uint64_t passed);

/* A TLB loses its entries: those of user addresses, or all. */
void tlm_structure_flush(struct tlm_structure *structure, bool global);

/* As after tlm_structure_init, but for the counts. */
void tlm_structure_cold(struct tlm_structure *structure);

/* Where the physical page `page` lies under the colours of `seed`: each seed is a permutation. */
uint64_t tlm_colour(uint64_t page, uint64_t seed);

#endif
