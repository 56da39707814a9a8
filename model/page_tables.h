/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel's page tables (x86-64) in the guest's memory: they tell which size of page maps an
 * address of the kernel's half. No emulator tells a plugin, and a kernel maps itself by pages of
 * all sizes. It does not own programs' pages, whose tables change with each process.
 */
#ifndef TRAPLESS_MODEL_TABLES_H
#define TRAPLESS_MODEL_TABLES_H

#include <stdbool.h>
#include <stdint.h>

#define TLM_TABLES_KNOWN 8 /* translations that a table is tried on */
#define TLM_TABLES_SEARCHES_MAX 64 /* of all memory, before it is given up */

struct tlm_tables {
	const uint8_t *memory; /* the guest's, where this process has it */
	uint64_t bytes;
	uint64_t top;	     /* physical address of the top table */
	unsigned int levels; /* 4 or 5; 0: not found */
	unsigned int searches;
	unsigned int known;  /* the latest so many translations are known to be right: */
	struct {
		uint64_t virtual;
		uint64_t physical;
	} right[TLM_TABLES_KNOWN];
};

/* The size of the page that maps `virtual`, as an access's flag, where it is known to lie at
 * `physical`. Tables that say otherwise are given up and searched anew. False: there are none. */
bool tlm_tables_page(struct tlm_tables *tables, uint64_t virtual, uint64_t physical,
		     uint64_t *page);

/* Mappings may have changed: what was known is so no longer. The tables stay. */
void tlm_tables_forget(struct tlm_tables *tables);

#endif
