/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Reads the text that says what is modelled: the guest's memory, the ranges of addresses that large
 * pages map, and the structures. trapless/model/model_plan.py writes the text; docs/model.md
 * describes it.
 */
#ifndef TRAPLESS_MODEL_CONFIG_H
#define TRAPLESS_MODEL_CONFIG_H

#include "hierarchy.h"

#include <stdio.h>

#define TLM_RANGES_MAX 32

struct tlm_range {
	uint64_t first;
	uint64_t last; /* inclusive */
	uint64_t page; /* TLM_PAGE_2M, TLM_PAGE_1G or 0 */
};

struct tlm_config {
	struct tlm_hierarchy *hierarchy;
	struct tlm_range ranges[TLM_RANGES_MAX];
	unsigned int range_count;
};

/* Read all of `file`. 0, or -EINVAL, -ENOSPC or -ENOMEM with line and reason in `error`; then
 * nothing is left to destroy. */
int tlm_config_read(struct tlm_config *config, FILE *file, char error[TLM_ERROR_MAX]);
void tlm_config_destroy(struct tlm_config *config);

/* The size of the page that maps `address`, as an access's flag. */
uint64_t tlm_config_page(const struct tlm_config *config, uint64_t address);

#endif
