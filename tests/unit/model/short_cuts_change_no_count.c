/* SPDX-License-Identifier: GPL-2.0-only
 *
 * What makes lookups fast changes no count: structures whose guesses are made wrong and whose
 * memories of the latest access are wiped, again and again, count as those left alone.
 */
#include "check.h"
#include "hierarchy.h"

#define ACCESSES 200000
#define LINES 4096 /* that accesses go to, 64 bytes each: a few times what the caches hold */

static uint64_t state = 1;

/* xorshift64*, by Vigna. */
static uint64_t draw(uint64_t below)
{
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return (state * 0x2545f4914f6cdd1dull >> 33) % below;
}

static struct tlm_hierarchy *build(enum tlm_policy policy, bool apart)
{
	const struct {
		struct tlm_geometry geometry;
		const char *from;
	} all[] = {
		{ { .name = "1", .size = 4096, .ways = 4, .line = 64, .through = true }, "data" },
		{ { .name = "2", .size = 32768, .ways = 8, .line = 128, .streams = 3, .ahead = 2 },
		  "1,fetch" },
		{ { .name = "3", .size = 65536, .ways = 16, .line = 64, .streams = 1, .ahead = 1 },
		  "2" },
		{ { .name = "d", .kind = TLM_TLB, .size = 32, .ways = 32, .pages = TLM_HOLDS_4K },
		  "data" },
	};
	struct tlm_hierarchy *hierarchy = tlm_hierarchy_create();
	char error[TLM_ERROR_MAX];
	size_t i;

	CHECK(hierarchy != NULL);
	for (i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		struct tlm_geometry geometry = all[i].geometry;

		geometry.policy = policy;
		geometry.apart = apart;
		if (tlm_hierarchy_add(hierarchy, &geometry, all[i].from, error))
			FAIL("%s", error);
	}
	return hierarchy;
}

/* All that a structure only remembers in order to be fast. */
static void mislead(struct tlm_structure *structure)
{
	uint64_t i;

	for (i = 0; i <= structure->guess_mask; i++)
		structure->guesses[i] = draw(structure->geometry.ways);
	memset(structure->last, 0, sizeof(structure->last));
	memset(structure->answers, 0, sizeof(structure->answers));
}

/* One access, or now and then a flush, at once through all structures. */
static void pass(struct tlm_hierarchy *hierarchy, uint64_t choice, uint64_t line, uint64_t access)
{
	uint64_t virtual = line * 64 | (access & TLM_KERNEL ? 1ull << 63 : 0);

	if (choice == 0)
		tlm_hierarchy_cr3(hierarchy);
	else if (choice == 1)
		tlm_hierarchy_flush(hierarchy);
	tlm_hierarchy_access(hierarchy, virtual, line * 64, access);
	tlm_hierarchy_drain(hierarchy);
}

static void compare(enum tlm_policy policy, bool apart)
{
	struct tlm_hierarchy *fast = build(policy, apart), *plain = build(policy, apart);
	uint64_t line = 0, step = 1;
	unsigned int i, n;

	for (n = 0; n < ACCESSES; n++) {
		uint64_t access = 1u << draw(3) | (draw(4) ? 0 : TLM_KERNEL), choice = draw(1000);

		if (draw(16) == 0) { /* a walk begins, up or down, or on one line */
			line = draw(LINES);
			step = draw(4) - 1;
		}
		line = (line + step) % LINES;
		pass(fast, choice, line, access);
		if (n % 16 == 0)
			for (i = 0; i < plain->count; i++)
				mislead(&plain->structures[i]);
		pass(plain, choice, line, access);
	}
	for (i = 0; i < fast->count; i++) {
		const struct tlm_counts *counts = &fast->structures[i].counts;

		CHECK(counts->misses[TLM_READ] > 0);
		CHECK(counts->misses[TLM_READ] < counts->references[TLM_READ]);
		CHECK(memcmp(counts, &plain->structures[i].counts, sizeof(*counts)) == 0);
	}
	tlm_hierarchy_destroy(plain);
	tlm_hierarchy_destroy(fast);
}

int main(void)
{
	enum tlm_policy policy;

	for (policy = TLM_LRU; policy <= TLM_RANDOM; policy++) {
		compare(policy, false);
		compare(policy, true);
	}
	return 0;
}
