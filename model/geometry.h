/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What an access is, and the geometry of a cache, TLB or footprint: its parameters, and the check
 * that such a structure can exist. It owns no contents; structure.h does.
 */
#ifndef TRAPLESS_MODEL_GEOMETRY_H
#define TRAPLESS_MODEL_GEOMETRY_H

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
	TLM_TAKES = 1 << 6, /* a write of a line that the other mode may hold */
	TLM_PASSED = 8,
};

#define TLM_STRUCTURES_MAX (64 - TLM_PASSED)
#define TLM_COHERENT_LINE 64 /* bytes; of coherent caches */
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
	bool coherent;	/* of a cache, apart: what one mode writes leaves the other's contents */
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

/*
 * Check a geometry for a machine with so much memory (0: unknown). Return 0, or -EINVAL with the
 * reason in `error`.
 */
int tlm_geometry_check(const struct tlm_geometry *geometry, uint64_t memory,
		       char error[TLM_ERROR_MAX]);

#endif
