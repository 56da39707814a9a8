// SPDX-License-Identifier: GPL-2.0-only
/*
 * Looks up, replaces and prefetches. A whole chunk of accesses passes one structure at a time, in a
 * loop that is compiled for its kind and policy: this is why modelling is cheap beside emulating.
 * It owns the contents of caches and TLBs.
 */
#include "structure.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TAG_VALID (1ull << 63)
#define TAG_KERNEL (1ull << 62) /* a TLB's entry of the kernel's half: global */
/* A TLB's tag holds both ends of the translation, so that equal addresses of two processes, or of
 * one page and its successor, are told apart as by the numbers of address spaces in hardware. */
#define ADDRESS_MASK ((1ull << 48) - 1)
#define FRAME_SHIFT 38
#define FRAME_MASK ((1ull << (62 - FRAME_SHIFT)) - 1)
#define GUESSES_EACH 4 /* at least so many places for an entry: few of those in use share one */
#define COLOUR_BITS 32 /* of page numbers that colours permute: 16 TB */
#define ALWAYS inline __attribute__((always_inline))

/* How many times the contents are there. */
static unsigned int parts(const struct tlm_structure *structure)
{
	return structure->geometry.apart ? 2 : 1;
}

/* A power of two. */
static uint64_t guesses(const struct tlm_structure *structure)
{
	uint64_t count = structure->sets;

	while (count < (uint64_t)structure->sets * structure->geometry.ways * GUESSES_EACH)
		count *= 2;
	return count;
}

/* A set's tree has a bit at each inner node, numbered from 1 at the root: the half where the next
 * victim is. Touching a way turns all bits on the path to it to the other halves. */
static void make_paths(struct tlm_path *paths, uint32_t count)
{
	uint32_t way, node;

	for (way = 0; way < count; way++) {
		paths[way] = (struct tlm_path){ .keep = ~0ull };
		for (node = count + way; node > 1; node >>= 1) {
			uint64_t bit = 1ull << (node >> 1);

			paths[way].keep &= ~bit;
			paths[way].set |= node & 1 ? 0 : bit;
		}
	}
}

int tlm_structure_init(struct tlm_structure *structure, const struct tlm_geometry *geometry,
		       uint64_t memory, char error[TLM_ERROR_MAX])
{
	bool cache = geometry->kind == TLM_CACHE;
	size_t sets;

	memset(structure, 0, sizeof(*structure));
	structure->geometry = *geometry;
	if (geometry->kind == TLM_FOOTPRINT)
		return tlm_footprint_init(&structure->footprint, &structure->geometry, memory,
					  error);
	if (tlm_geometry_check(geometry, memory, error))
		return -EINVAL;
	structure->sets = geometry->size / geometry->ways / (cache ? geometry->line : 1);
	structure->line_bits = cache ? __builtin_ctz(geometry->line) : 0;
	structure->guess_mask = guesses(structure) - 1;
	sets = (size_t)structure->sets * parts(structure);
	structure->tags = calloc(sets * geometry->ways, sizeof(uint64_t));
	structure->guesses = calloc(guesses(structure), sizeof(uint16_t));
	structure->trees = calloc(sets, sizeof(uint64_t));
	structure->paths = calloc(geometry->ways, sizeof(struct tlm_path));
	structure->streams = calloc((geometry->streams + 1) * parts(structure),
				    sizeof(struct tlm_stream));
	if (!structure->tags || !structure->guesses || !structure->trees || !structure->paths ||
	    !structure->streams) {
		snprintf(error, TLM_ERROR_MAX, "%s: no memory for its %zu sets", geometry->name,
			 sets);
		tlm_structure_deinit(structure);
		return -ENOMEM;
	}
	if (geometry->policy == TLM_PLRU)
		make_paths(structure->paths, geometry->ways);
	tlm_structure_cold(structure);
	return 0;
}

void tlm_structure_deinit(struct tlm_structure *structure)
{
	tlm_footprint_deinit(&structure->footprint);
	free(structure->streams);
	free(structure->paths);
	free(structure->trees);
	free(structure->guesses);
	free(structure->tags);
	memset(structure, 0, sizeof(*structure));
}

void tlm_structure_cold(struct tlm_structure *structure)
{
	const struct tlm_geometry *geometry = &structure->geometry;
	size_t sets = (size_t)structure->sets * parts(structure);

	if (geometry->kind == TLM_FOOTPRINT) {
		tlm_footprint_cold(&structure->footprint);
		return;
	}
	memset(structure->tags, 0, sets * geometry->ways * sizeof(uint64_t));
	memset(structure->trees, 0, sets * sizeof(uint64_t));
	memset(structure->streams, 0,
	       geometry->streams * parts(structure) * sizeof(struct tlm_stream));
	memset(structure->answers, 0, sizeof(structure->answers));
	structure->last[0] = structure->last[1] = 0;
	structure->clock = 0;
	structure->holes = false;
	structure->random = geometry->seed;
}

uint64_t tlm_colour(uint64_t page, uint64_t seed)
{
	uint32_t low = page;

	/* Each step can be undone modulo 2^32: no two pages come to lie in one place. */
	low ^= (uint32_t)(seed * 0x9e3779b97f4a7c15ull >> 32);
	low *= 0x7feb352du;
	low ^= low >> 15;
	low *= 0x846ca68bu;
	low ^= low >> 16;
	return (page >> COLOUR_BITS << COLOUR_BITS) | low;
}

/* splitmix64: the state is a counter, so that a seed of 0 is as good as any. */
static uint64_t draw(uint64_t *state)
{
	uint64_t value = (*state += 0x9e3779b97f4a7c15ull);

	value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9ull;
	value = (value ^ value >> 27) * 0x94d049bb133111ebull;
	return value ^ value >> 31;
}

/* LRU: a set's ways stand in the order of their use, so that a hit is mostly found at once. */
static ALWAYS bool touch_lru(uint64_t *ways, uint32_t count, uint64_t tag, bool fill)
{
	uint32_t way = 0;
	bool hit;

	while (way < count && ways[way] != tag)
		way++;
	hit = way < count;
	if (!hit) {
		if (!fill)
			return false;
		way = count - 1;
	}
	for (; way > 0; way--)
		ways[way] = ways[way - 1];
	ways[0] = tag;
	return hit;
}

/* What an access looks for: the number of a line or page, and what tells it from all others. */
struct entry {
	uint64_t number;
	uint64_t tag;
};

static ALWAYS struct entry line_entry(uint64_t line)
{
	return (struct entry){ .number = line, .tag = line | TAG_VALID };
}

static ALWAYS uint32_t find(const uint64_t *ways, uint32_t count, uint64_t tag)
{
	uint32_t way = 0;

	while (way < count && ways[way] != tag)
		way++;
	return way;
}

/* The way of the next victim; make_paths() says what a tree is. */
static ALWAYS uint32_t tree_victim(uint64_t tree, uint32_t count)
{
	uint32_t node = 1;

	while (node < count)
		node = 2 * node + (tree >> node & 1);
	return node - count;
}

static ALWAYS uint32_t victim(struct tlm_structure *structure, enum tlm_policy policy,
			      uint32_t count, uint64_t set)
{
	const uint64_t *ways = structure->tags + set * count;
	uint32_t way = count;

	/* Places are filled in order; only a flush of some leaves holes. */
	if (structure->holes || !ways[count - 1])
		way = find(ways, count, 0);
	if (way < count)
		return way;
	if (policy == TLM_PLRU)
		return tree_victim(structure->trees[set], count);
	return (draw(&structure->random) >> 32) * count >> 32;
}

static ALWAYS bool touch(struct tlm_structure *structure, enum tlm_policy policy, uint32_t count,
			 unsigned int part, struct entry entry, bool fill)
{
	uint64_t set = (entry.number & (structure->sets - 1)) + (uint64_t)part * structure->sets;
	uint64_t *ways = structure->tags + set * count;
	uint16_t *guess = &structure->guesses[entry.number & structure->guess_mask];
	uint32_t way = *guess;
	bool hit = true;

	if (policy == TLM_LRU)
		return touch_lru(ways, count, entry.tag, fill);
	/* What hits is mostly where it was the last time, and a search is most of the work. */
	if (ways[way] != entry.tag) {
		way = find(ways, count, entry.tag);
		hit = way < count;
		if (!hit && !fill)
			return false;
		if (!hit) {
			way = victim(structure, policy, count, set);
			ways[way] = entry.tag;
		}
		*guess = way;
	}
	if (policy == TLM_PLRU) {
		const struct tlm_path *path = &structure->paths[way];

		structure->trees[set] = (structure->trees[set] & path->keep) | path->set;
	}
	return hit;
}

static struct tlm_stream *find_stream(struct tlm_stream *streams, uint32_t count, uint64_t page)
{
	uint32_t i;

	for (i = 0; i < count; i++)
		if (streams[i].page == page)
			return &streams[i];
	return NULL;
}

/* The one used longest ago begins anew in this page. */
static struct tlm_stream *begin_stream(struct tlm_stream *streams, uint32_t count, uint64_t page)
{
	struct tlm_stream *oldest = streams;
	uint32_t i;

	for (i = 1; i < count; i++)
		if (streams[i].used < oldest->used)
			oldest = &streams[i];
	oldest->page = page;
	oldest->line = -1;
	return oldest;
}

/* The stream in this page; after a miss there is one. Walks ask for the same page again and again:
 * the latest answer holds until another page's stream begins, which is an answer itself. */
static ALWAYS struct tlm_stream *stream_of(struct tlm_structure *structure, unsigned int part,
					   uint64_t page, bool missed)
{
	const uint32_t count = structure->geometry.streams;
	struct tlm_stream_answer *answer = &structure->answers[part];
	struct tlm_stream *streams = structure->streams + part * count;

	if (answer->page != page) {
		answer->page = page;
		answer->stream = find_stream(streams, count, page);
	}
	if (!answer->stream && missed)
		answer->stream = begin_stream(streams, count, page);
	return answer->stream;
}

/* Two neighbouring lines in a row make a stream: from then on lines ahead of it, up to the page's
 * end, are brought in. `line` is the number of the line just looked up; pages count from 1. */
static ALWAYS void prefetch(struct tlm_structure *structure, enum tlm_policy policy, uint32_t ways,
			    uint64_t line, bool missed, bool kernel)
{
	const struct tlm_geometry *geometry = &structure->geometry;
	const unsigned int bits = TLM_PAGE_BITS - structure->line_bits;
	const int32_t lines = 1 << bits, place = line & (lines - 1);
	unsigned int part = geometry->apart && kernel;
	struct tlm_stream *stream = stream_of(structure, part, (line >> bits) + 1, missed);
	int32_t step, next;
	uint32_t i;

	if (!stream)
		return;
	step = stream->line < 0 ? 0 : place - stream->line;
	stream->used = ++structure->clock;
	stream->line = place;
	if (step != 1 && step != -1)
		return;
	for (i = 1, next = place + step; i <= geometry->ahead; i++, next += step) {
		if (next < 0 || next >= lines)
			break;
		if (!touch(structure, policy, ways, part, line_entry(line - place + next), true))
			structure->counts.prefetches[kernel]++;
		structure->last[part] = 0;
	}
}

static ALWAYS struct entry cache_entry(const struct tlm_structure *structure, uint64_t address)
{
	const uint64_t inside = (1 << TLM_PAGE_BITS) - 1, colour = structure->geometry.colour;

	if (colour)
		address = tlm_colour(address >> TLM_PAGE_BITS, colour) << TLM_PAGE_BITS |
			  (address & inside);
	return line_entry(address >> structure->line_bits);
}

/* Sizes: 0: 4 KB, 1: 2 MB, 2: 1 GB. */
static ALWAYS unsigned int page_size(uint64_t access)
{
	return access / TLM_PAGE_2M & 3;
}

static ALWAYS struct entry tlb_entry(uint64_t virtual, uint64_t physical, unsigned int size)
{
	uint64_t page = (virtual & ADDRESS_MASK) >> (TLM_PAGE_BITS + 9 * size);
	uint64_t frame = physical >> (TLM_PAGE_BITS + 9 * size) & FRAME_MASK;
	uint64_t tag = TAG_VALID | frame << FRAME_SHIFT | page << 2 | size;

	if (virtual >> 63)
		tag |= TAG_KERNEL;
	return (struct entry){ .number = page, .tag = tag };
}

/* The line leaves one mode's part, if it is there. */
static void drop(struct tlm_structure *structure, unsigned int part, struct entry entry)
{
	const uint32_t count = structure->geometry.ways;
	uint64_t set = (entry.number & (structure->sets - 1)) + (uint64_t)part * structure->sets;
	uint64_t *ways = structure->tags + set * count;
	uint32_t way = find(ways, count, entry.tag);

	if (way == count)
		return;
	if (structure->geometry.policy == TLM_LRU)
		for (; way + 1 < count; way++)
			ways[way] = ways[way + 1];
	else
		structure->holes = true;
	ways[way] = 0;
	if (structure->last[part] == entry.tag)
		structure->last[part] = 0;
}

/* `type`, `policy` and, where it is a number, `ways` are known where this is compiled. */
static ALWAYS void run(struct tlm_structure *structure, const struct tlm_chunk *chunk,
		       uint64_t passed, enum tlm_kind type, enum tlm_policy policy, uint32_t ways)
{
	const struct tlm_geometry *geometry = &structure->geometry;
	struct tlm_counts *counts = &structure->counts;
	const bool coherent = type == TLM_CACHE && geometry->coherent;
	size_t i;

	for (i = 0; i < chunk->count; i++) {
		uint64_t access = chunk->access[i];
		unsigned int kind = access & ((1 << TLM_KIND_BITS) - 1), part;
		bool fill = true, hit;
		struct entry entry;

		if (coherent && access & TLM_TAKES)
			drop(structure, !(access & TLM_KERNEL),
			     cache_entry(structure, chunk->physical[i]));
		if (!(access & geometry->from))
			continue;
		if (type == TLM_TLB && !(geometry->pages >> page_size(access) & 1))
			continue;
		counts->references[kind]++;
		if (type == TLM_TLB)
			entry = tlb_entry(chunk->virtual[i], chunk->physical[i], page_size(access));
		else
			entry = cache_entry(structure, chunk->physical[i]);
		if (type == TLM_CACHE && geometry->through && access & TLM_WRITE) {
			chunk->access[i] |= passed;
			fill = false;
		}
		part = geometry->apart && access & TLM_KERNEL;
		if (entry.tag == structure->last[part])
			continue;
		hit = touch(structure, policy, ways, part, entry, fill);
		if (hit || fill)
			structure->last[part] = entry.tag;
		if (!hit) {
			counts->misses[kind]++;
			chunk->access[i] |= passed;
		}
		if (type == TLM_CACHE && geometry->streams)
			prefetch(structure, policy, ways, entry.number, !hit, access & TLM_KERNEL);
	}
}

/* Most caches have eight or four ways, and loops over so many need no counting. */
static ALWAYS void run_cache(struct tlm_structure *structure, const struct tlm_chunk *chunk,
			     uint64_t passed, enum tlm_policy policy)
{
	if (structure->geometry.ways == 8)
		run(structure, chunk, passed, TLM_CACHE, policy, 8);
	else if (structure->geometry.ways == 4)
		run(structure, chunk, passed, TLM_CACHE, policy, 4);
	else
		run(structure, chunk, passed, TLM_CACHE, policy, structure->geometry.ways);
}

static ALWAYS void run_tlb(struct tlm_structure *structure, const struct tlm_chunk *chunk,
			   uint64_t passed, enum tlm_policy policy)
{
	run(structure, chunk, passed, TLM_TLB, policy, structure->geometry.ways);
}

void tlm_structure_run(struct tlm_structure *structure, const struct tlm_chunk *chunk,
		       uint64_t passed)
{
	switch (structure->geometry.kind * 4 + structure->geometry.policy) {
	case TLM_CACHE * 4 + TLM_LRU:
		return run_cache(structure, chunk, passed, TLM_LRU);
	case TLM_CACHE * 4 + TLM_PLRU:
		return run_cache(structure, chunk, passed, TLM_PLRU);
	case TLM_CACHE * 4 + TLM_RANDOM:
		return run_cache(structure, chunk, passed, TLM_RANDOM);
	case TLM_TLB * 4 + TLM_LRU:
		return run_tlb(structure, chunk, passed, TLM_LRU);
	case TLM_TLB * 4 + TLM_PLRU:
		return run_tlb(structure, chunk, passed, TLM_PLRU);
	case TLM_TLB * 4 + TLM_RANDOM:
		return run_tlb(structure, chunk, passed, TLM_RANDOM);
	default:
		return tlm_footprint_run(&structure->footprint, &structure->geometry, chunk,
					 &structure->counts);
	}
}

void tlm_structure_flush(struct tlm_structure *structure, bool global)
{
	uint32_t count = structure->geometry.ways, set, way;
	bool ordered = structure->geometry.policy == TLM_LRU;

	for (set = 0; set < structure->sets * parts(structure); set++) {
		uint64_t *ways = structure->tags + (size_t)set * count;
		uint32_t kept = 0;

		for (way = 0; way < count; way++) {
			uint64_t tag = !global && ways[way] & TAG_KERNEL ? ways[way] : 0;

			ways[way] = 0;
			if (tag)
				ways[ordered ? kept++ : way] = tag;
		}
	}
	structure->holes = !global;
	structure->last[0] = structure->last[1] = 0;
}
