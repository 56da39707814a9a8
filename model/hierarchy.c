// SPDX-License-Identifier: GPL-2.0-only
/*
 * Owns which structure feeds which, and passes chunks of accesses through all of them.
 */
#include "hierarchy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tlm_hierarchy *tlm_hierarchy_create(void)
{
	struct tlm_hierarchy *hierarchy = calloc(1, sizeof(*hierarchy));

	if (hierarchy)
		hierarchy->label = -1;
	return hierarchy;
}

void tlm_hierarchy_destroy(struct tlm_hierarchy *hierarchy)
{
	while (hierarchy->count > 0)
		tlm_structure_deinit(&hierarchy->structures[--hierarchy->count]);
	free(hierarchy->holders);
	free(hierarchy);
}

struct tlm_structure *tlm_hierarchy_find(struct tlm_hierarchy *hierarchy, const char *name)
{
	unsigned int i;

	for (i = 0; i < hierarchy->count; i++)
		if (strcmp(hierarchy->structures[i].geometry.name, name) == 0)
			return &hierarchy->structures[i];
	return NULL;
}

static uint64_t passed_by(unsigned int index)
{
	return 1ull << (TLM_PASSED + index);
}

/* The bits of one word of `from`; 0: unknown, or of the other kind. */
static uint64_t source(struct tlm_hierarchy *hierarchy, enum tlm_kind kind, const char *word)
{
	static const struct {
		const char *name;
		uint64_t bits;
	} kinds[] = {
		{ "read", TLM_READ },
		{ "write", TLM_WRITE },
		{ "fetch", TLM_FETCH },
		{ "data", TLM_READ | TLM_WRITE },
	};
	struct tlm_structure *structure;
	size_t i;

	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (strcmp(kinds[i].name, word) == 0)
			return kinds[i].bits;
	structure = tlm_hierarchy_find(hierarchy, word);
	if (!structure || structure->geometry.kind != kind || kind == TLM_FOOTPRINT)
		return 0;
	return passed_by(structure - hierarchy->structures);
}

static size_t holder_count(const struct tlm_hierarchy *hierarchy)
{
	return hierarchy->memory / TLM_COHERENT_LINE + 1; /* the last: of what lies beyond */
}

/* From the first coherent cache on it is known of each line which mode may hold it. */
static int add_holders(struct tlm_hierarchy *hierarchy, char error[TLM_ERROR_MAX])
{
	if (!hierarchy->holders)
		hierarchy->holders = calloc(holder_count(hierarchy), 1);
	if (hierarchy->holders)
		return 0;
	snprintf(error, TLM_ERROR_MAX, "no memory for the holders of lines");
	return -ENOMEM;
}

int tlm_hierarchy_add(struct tlm_hierarchy *hierarchy, const struct tlm_geometry *geometry,
		      const char *from, char error[TLM_ERROR_MAX])
{
	static const char *const kinds[] = { "cache", "TLB", "structure (of a footprint)" };
	struct tlm_geometry wanted = *geometry;
	char words[1024], *word, *rest = words;
	int result;

	if (hierarchy->count == TLM_STRUCTURES_MAX) {
		snprintf(error, TLM_ERROR_MAX, "%s: more than %d structures", geometry->name,
			 TLM_STRUCTURES_MAX);
		return -ENOSPC;
	}
	if (tlm_hierarchy_find(hierarchy, geometry->name)) {
		snprintf(error, TLM_ERROR_MAX, "%s: there are two of this name", geometry->name);
		return -EINVAL;
	}
	wanted.from = 0;
	snprintf(words, sizeof(words), "%s", from);
	while ((word = strsep(&rest, ","))) {
		uint64_t bits = source(hierarchy, geometry->kind, word);

		if (bits == 0) {
			snprintf(error, TLM_ERROR_MAX,
				 "%s: from=%.60s: neither read, write, fetch, data "
				 "nor a %s before it",
				 geometry->name, word,
				 kinds[geometry->kind]);
			return -EINVAL;
		}
		wanted.from |= bits;
	}
	result = tlm_structure_init(&hierarchy->structures[hierarchy->count], &wanted,
				    hierarchy->memory, error);
	if (result)
		return result;
	hierarchy->count++;
	return wanted.coherent ? add_holders(hierarchy, error) : 0;
}

/* Marks the writes that take a line from the other mode, in the order of all accesses. */
static void mark_taking(struct tlm_hierarchy *hierarchy, const struct tlm_chunk *chunk)
{
	const uint64_t beyond = holder_count(hierarchy) - 1;
	size_t i;

	for (i = 0; i < chunk->count; i++) {
		uint64_t line = chunk->physical[i] / TLM_COHERENT_LINE;
		uint8_t *holders = &hierarchy->holders[line < beyond ? line : beyond];
		const uint8_t mode = chunk->access[i] & TLM_KERNEL ? 2 : 1;

		if (chunk->access[i] & TLM_WRITE) {
			if (*holders & ~mode)
				chunk->access[i] |= TLM_TAKES;
			*holders = mode;
		} else {
			*holders |= mode;
		}
	}
}

void tlm_hierarchy_drain(struct tlm_hierarchy *hierarchy)
{
	struct tlm_chunk chunk = {
		.count = hierarchy->waiting,
		.virtual = hierarchy->virtual,
		.physical = hierarchy->physical,
		.access = hierarchy->access,
	};
	unsigned int i;

	hierarchy->waiting = 0;
	if (chunk.count == 0)
		return;
	if (hierarchy->holders)
		mark_taking(hierarchy, &chunk);
	for (i = 0; i < hierarchy->count; i++) {
		struct tlm_structure *structure = &hierarchy->structures[i];

		if (!structure->geometry.labelled ||
		    (int)structure->geometry.label == hierarchy->label)
			tlm_structure_run(structure, &chunk, passed_by(i));
	}
}

void tlm_hierarchy_label(struct tlm_hierarchy *hierarchy, int label)
{
	tlm_hierarchy_drain(hierarchy);
	hierarchy->label = label;
}

static void flush(struct tlm_hierarchy *hierarchy, bool everything)
{
	unsigned int i;

	tlm_hierarchy_drain(hierarchy);
	for (i = 0; i < hierarchy->count; i++) {
		struct tlm_structure *structure = &hierarchy->structures[i];
		enum tlm_flush how = structure->geometry.flush;

		if (structure->geometry.kind != TLM_TLB)
			continue;
		if (everything || how != TLM_FLUSH_NONE)
			tlm_structure_flush(structure, everything || how == TLM_FLUSH_ALL);
	}
}

void tlm_hierarchy_cr3(struct tlm_hierarchy *hierarchy)
{
	flush(hierarchy, false);
}

void tlm_hierarchy_flush(struct tlm_hierarchy *hierarchy)
{
	flush(hierarchy, true);
}

void tlm_hierarchy_cold(struct tlm_hierarchy *hierarchy)
{
	unsigned int i;

	tlm_hierarchy_drain(hierarchy);
	for (i = 0; i < hierarchy->count; i++)
		tlm_structure_cold(&hierarchy->structures[i]);
	if (hierarchy->holders)
		memset(hierarchy->holders, 0, holder_count(hierarchy));
}
