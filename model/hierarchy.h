/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Structures that feed each other. A program's accesses enter in order; each structure sees those
 * that it is fed with, by their kind or passed on by other structures. Several configurations are
 * modelled at once by having all their structures in one hierarchy; a structure that two of them
 * share exists once.
 *
 * It is not thread-safe: one hierarchy follows one processor, or one for each mode where caches are
 * coherent.
 */
#ifndef TRAPLESS_MODEL_HIERARCHY_H
#define TRAPLESS_MODEL_HIERARCHY_H

#include "structure.h"

#define TLM_CHUNK 1024 /* accesses handed to the structures at a time */

struct tlm_hierarchy {
	struct tlm_structure structures[TLM_STRUCTURES_MAX];
	unsigned int count;
	uint64_t memory; /* bytes; 0: unknown */
	uint8_t *holders; /* of each line: the modes that may hold it; NULL: nothing is coherent */
	int label; /* last four bits of the open region's; -1: none is open */
	size_t waiting;
	uint64_t virtual[TLM_CHUNK];
	uint64_t physical[TLM_CHUNK];
	uint64_t access[TLM_CHUNK];
};

struct tlm_hierarchy *tlm_hierarchy_create(void);
void tlm_hierarchy_destroy(struct tlm_hierarchy *hierarchy);

/* Add a structure behind those already there. `from` names what feeds it, separated by commas:
 * "read", "write", "fetch", "data" (the first two), or structures of its own kind.
 * 0, or -EINVAL, -ENOSPC or -ENOMEM with the reason in `error`. */
int tlm_hierarchy_add(struct tlm_hierarchy *hierarchy, const struct tlm_geometry *geometry,
		      const char *from, char error[TLM_ERROR_MAX]);

/* NULL if there is none of that name. */
struct tlm_structure *tlm_hierarchy_find(struct tlm_hierarchy *hierarchy, const char *name);

/* Bring all counts up to date: accesses wait until there is a chunk of them. */
void tlm_hierarchy_drain(struct tlm_hierarchy *hierarchy);

/* A region whose label ends in these four bits begins; -1: it ended. */
void tlm_hierarchy_label(struct tlm_hierarchy *hierarchy, int label);

/* CR3 was written: each TLB does what its geometry says. */
void tlm_hierarchy_cr3(struct tlm_hierarchy *hierarchy);

/* Every TLB loses everything, global entries too. */
void tlm_hierarchy_flush(struct tlm_hierarchy *hierarchy);

/* All structures as new, but for their counts. */
void tlm_hierarchy_cold(struct tlm_hierarchy *hierarchy);

/* One access: `access` is one of TLM_READ, TLM_WRITE and TLM_FETCH, with TLM_KERNEL where the
 * kernel makes it and TLM_PAGE_2M or TLM_PAGE_1G where such a page maps it. */
static inline void tlm_hierarchy_access(struct tlm_hierarchy *hierarchy, uint64_t virtual,
					uint64_t physical, uint64_t access)
{
	size_t at = hierarchy->waiting;

	hierarchy->virtual[at] = virtual;
	hierarchy->physical[at] = physical;
	hierarchy->access[at] = access;
	hierarchy->waiting = at + 1;
	if (at + 1 == TLM_CHUNK)
		tlm_hierarchy_drain(hierarchy);
}

#endif
