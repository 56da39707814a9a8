/* SPDX-License-Identifier: GPL-2.0-only
 *
 * One cache, translation look-aside buffer or footprint: its geometry, its contents, its counts.
 * Caches look at physical addresses, TLBs at virtual ones; both are sets of ways with a policy of
 * replacement. A footprint (footprint.c) forgets nothing: its misses are the distinct units of
 * memory that were touched. It owns nothing of how structures feed each other (hierarchy.h), and
 * knows no emulator.
 */
#ifndef TRAPLESS_MODEL_STRUCTURE_H
#define TRAPLESS_MODEL_STRUCTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TLM_NAME_MAX 96	      /* bytes of a structure's name, with the zero */
#define TLM_ERROR_MAX 320     /* bytes of a message, with the zero */
#define TLM_WAYS_MAX 4096
#define TLM_TREE_WAYS_MAX 64  /* a set's tree is one word */
#define TLM_SETS_MAX (1u << 24)
#define TLM_STREAMS_MAX 64
#define TLM_PAGE_BITS 12      /* of the smallest page, and of the unit that page colours move */

/* An access: what it is, and, from bit TLM_PASSED up, which structures passed it on. */
enum {
	TLM_READ = 1 << 0,
	TLM_WRITE = 1 << 1,
	TLM_FETCH = 1 << 2,
	TLM_KERNEL = 1 << 3,
	TLM_KIND_BITS = 4,
	TLM_PAGE_2M = 1 << 4,
	TLM_PAGE_1G = 1 << 5,
	TLM_PASSED = 8,
};

#define TLM_STRUCTURES_MAX (64 - TLM_PASSED)
#define TLM_LABELS 16 /* by a label's last four bits */

enum tlm_kind { TLM_CACHE, TLM_TLB, TLM_FOOTPRINT };
enum tlm_policy { TLM_LRU, TLM_PLRU, TLM_RANDOM };
enum tlm_flush { TLM_FLUSH_NONGLOBAL, TLM_FLUSH_ALL, TLM_FLUSH_NONE };

/* Sizes a TLB has entries for. */
enum {
	TLM_HOLDS_4K = 1 << 0,
	TLM_HOLDS_2M = 1 << 1,
	TLM_HOLDS_1G = 1 << 2,
};

struct tlm_geometry {
	char name[TLM_NAME_MAX];
	enum tlm_kind kind;
	enum tlm_policy policy;
	uint64_t size;	/* bytes of a cache, entries of a TLB */
	uint32_t ways;
	uint32_t line;	/* bytes; of a cache, or the unit of a footprint */
	bool apart;	/* user and kernel accesses each have contents of their own */
	unsigned int pages; /* TLM_HOLDS_*; of a TLB */
	enum tlm_flush flush; /* of a TLB, when CR3 is written */
	bool through;	/* of a cache: writes do not allocate, and all go on to the next */
	uint32_t streams; /* of a cache: followed by its prefetcher; 0: none */
	uint32_t ahead; /* lines that it fetches ahead of a stream */
	uint64_t colour; /* of a cache: seed of page colours; 0: pages where they are */
	uint64_t seed;	/* of random replacement */
	bool crossing;	/* of a footprint: emptied when the mode of accesses changes */
	bool labelled;	/* of a footprint: sees only regions whose label ends in `label` */
	unsigned int label;
	uint64_t from;	/* TLM_READ | TLM_WRITE | TLM_FETCH, or TLM_PASSED bits of what feeds it */
};

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

struct tlm_counts {
	uint64_t references[1 << TLM_KIND_BITS]; /* by TLM_READ, _WRITE or _FETCH, and TLM_KERNEL */
	uint64_t misses[1 << TLM_KIND_BITS];
	uint64_t prefetches[2]; /* lines brought in ahead, by user and by kernel accesses */
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
	uint32_t *stamps; /* of a footprint, a unit each: touched, if equal to `stamp` */
	uint32_t stamp;
	bool kernel;	/* a footprint's latest access was */
};

/* Accesses on their way through the structures, in order. */
struct tlm_chunk {
	size_t count;
	const uint64_t *virtual;
	const uint64_t *physical;
	uint64_t *access;
};

/* 0, or -EINVAL with the reason in `error`; for a machine with so much memory, 0 if unknown. */
int tlm_geometry_check(const struct tlm_geometry *geometry, uint64_t memory,
		       char error[TLM_ERROR_MAX]);

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

/* The same for a footprint, which the functions above call. */
int tlm_footprint_init(struct tlm_structure *footprint, uint64_t memory,
		       char error[TLM_ERROR_MAX]);
void tlm_footprint_deinit(struct tlm_structure *footprint);
void tlm_footprint_run(struct tlm_structure *footprint, const struct tlm_chunk *chunk);
void tlm_footprint_cold(struct tlm_structure *footprint);

/* Where the physical page `page` lies under the colours of `seed`: each seed is a permutation. */
uint64_t tlm_colour(uint64_t page, uint64_t seed);

#endif
