/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Short traces whose hits and misses were worked out by hand, through each policy, write, prefetch
 * and flush. What no hand can work out is compared with another implementation
 * (test_replay.py).
 */
#include "check.h"
#include "hierarchy.h"

static struct tlm_hierarchy *hierarchy;

static struct tlm_structure *add(struct tlm_geometry geometry, const char *from)
{
	char error[TLM_ERROR_MAX];

	if (geometry.kind != TLM_TLB && !geometry.line)
		geometry.line = 64;
	if (tlm_hierarchy_add(hierarchy, &geometry, from, error))
		FAIL("%s", error);
	return tlm_hierarchy_find(hierarchy, geometry.name);
}

static void start(void)
{
	if (hierarchy)
		tlm_hierarchy_destroy(hierarchy);
	hierarchy = tlm_hierarchy_create();
}

/* Lines of the cache, one read each, a letter a line: "abca". */
static uint64_t misses(struct tlm_structure *structure, const char *lines)
{
	uint64_t before;

	tlm_hierarchy_drain(hierarchy);
	before = structure->counts.misses[TLM_READ];
	for (; *lines; lines++)
		tlm_hierarchy_access(hierarchy, 0, (*lines - 'a') * 64, TLM_READ);
	tlm_hierarchy_drain(hierarchy);
	return structure->counts.misses[TLM_READ] - before;
}

static void lru(void)
{
	struct tlm_structure *cache;

	start();
	cache = add((struct tlm_geometry){ .name = "c", .size = 256, .ways = 4 }, "read");
	CHECK_EQ(misses(cache, "abcd"), 4);
	CHECK_EQ(misses(cache, "abcd"), 0);
	CHECK_EQ(misses(cache, "e"), 1); /* for a */
	CHECK_EQ(misses(cache, "bcde"), 0);
	CHECK_EQ(misses(cache, "a"), 1); /* for b */
	CHECK_EQ(misses(cache, "cdea"), 0);
	CHECK_EQ(misses(cache, "abcdeabcde"), 9); /* five in four, round and round; a was there */
}

static void plru(void)
{
	struct tlm_structure *cache;

	start();
	cache = add((struct tlm_geometry){ .name = "c", .size = 256, .ways = 4,
					   .policy = TLM_PLRU },
		    "read");
	CHECK_EQ(misses(cache, "abcd"), 4);
	/* The victim is a's; then, a's half having been used, the older of the other: c. */
	CHECK_EQ(misses(cache, "e"), 1);
	CHECK_EQ(misses(cache, "f"), 1);
	CHECK_EQ(misses(cache, "bde"), 0);
	CHECK_EQ(misses(cache, "f"), 0);
	/* Last used: f, of the half f d; there e after b. So b goes, which true LRU would too; */
	CHECK_EQ(misses(cache, "g"), 1);
	CHECK_EQ(misses(cache, "efdg"), 0);
	/* g was used last, so the half f d loses: f, though e is older still. */
	CHECK_EQ(misses(cache, "h"), 1);
	CHECK_EQ(misses(cache, "edg"), 0);
	CHECK_EQ(misses(cache, "f"), 1);
}

static void sets(void)
{
	struct tlm_structure *cache;

	start(); /* 2 sets of 2 ways: a c e share one, b d f the other */
	cache = add((struct tlm_geometry){ .name = "c", .size = 256, .ways = 2 }, "read");
	CHECK_EQ(misses(cache, "abcd"), 4);
	CHECK_EQ(misses(cache, "acbd"), 0);
	CHECK_EQ(misses(cache, "e"), 1);
	CHECK_EQ(misses(cache, "bd"), 0);
	CHECK_EQ(misses(cache, "c"), 0);
	CHECK_EQ(misses(cache, "a"), 1);
}

static void writes(void)
{
	struct tlm_structure *through, *behind;

	start();
	through = add((struct tlm_geometry){ .name = "1", .size = 256, .ways = 4, .through = true },
		      "data");
	behind = add((struct tlm_geometry){ .name = "2", .size = 512, .ways = 8 }, "1");
	tlm_hierarchy_access(hierarchy, 0, 0, TLM_WRITE); /* does not allocate */
	tlm_hierarchy_access(hierarchy, 0, 0, TLM_WRITE);
	tlm_hierarchy_access(hierarchy, 0, 0, TLM_READ | TLM_KERNEL);
	tlm_hierarchy_access(hierarchy, 0, 0, TLM_WRITE); /* a hit, and goes on all the same */
	tlm_hierarchy_access(hierarchy, 0, 0, TLM_READ);
	tlm_hierarchy_drain(hierarchy);
	CHECK_EQ(through->counts.references[TLM_WRITE], 3);
	CHECK_EQ(through->counts.misses[TLM_WRITE], 2);
	CHECK_EQ(through->counts.misses[TLM_READ | TLM_KERNEL], 1);
	CHECK_EQ(through->counts.misses[TLM_READ], 0);
	CHECK_EQ(behind->counts.references[TLM_WRITE], 3);
	CHECK_EQ(behind->counts.misses[TLM_WRITE], 1);
	CHECK_EQ(behind->counts.references[TLM_READ | TLM_KERNEL], 1);
	CHECK_EQ(behind->counts.references[TLM_READ], 0);
}

static void prefetches(void)
{
	struct tlm_structure *cache;

	start();
	cache = add((struct tlm_geometry){ .name = "c", .size = 65536, .ways = 16, .streams = 2,
					   .ahead = 2 },
		    "read");
	/* a and b miss and make a stream: c and d come; c brings e, d f, and so on. */
	CHECK_EQ(misses(cache, "abcdefgh"), 2);
	CHECK_EQ(cache->counts.prefetches[0], 8);
	/* Downwards too: 51 and 50 miss, 49 and on are there. */
	CHECK_EQ(misses(cache, (char[]){ 'a' + 51, 'a' + 50, 'a' + 49, 'a' + 48, 0 }), 2);
	/* Not over a page's end: lines 62 and 63 bring nothing of the next page. */
	CHECK_EQ(misses(cache, (char[]){ 'a' + 62, 'a' + 63, 0 }), 2);
	tlm_hierarchy_access(hierarchy, 0, 4096, TLM_READ);
	tlm_hierarchy_drain(hierarchy);
	CHECK_EQ(cache->counts.misses[TLM_READ], 7);
}

static uint64_t tlb_misses(struct tlm_structure *tlb, uint64_t address, uint64_t frame,
			   uint64_t access)
{
	uint64_t before = tlb->counts.misses[access & 15];

	tlm_hierarchy_access(hierarchy, address, frame, access);
	tlm_hierarchy_drain(hierarchy);
	return tlb->counts.misses[access & 15] - before;
}

static void tlbs(void)
{
	const uint64_t kernel = 0xffff888000000000;
	struct tlm_structure *tlb, *kept, *small;
	struct tlm_geometry geometry = { .name = "t", .kind = TLM_TLB, .size = 4, .ways = 4,
					 .pages = TLM_HOLDS_4K | TLM_HOLDS_2M };

	start();
	tlb = add(geometry, "data");
	strcpy(geometry.name, "kept");
	geometry.flush = TLM_FLUSH_NONE;
	kept = add(geometry, "data");
	strcpy(geometry.name, "small");
	geometry.pages = TLM_HOLDS_4K;
	small = add(geometry, "data");

	CHECK_EQ(tlb_misses(tlb, 0x1000, 0x5000, TLM_READ), 1);
	CHECK_EQ(tlb_misses(tlb, 0x1fff, 0x5fff, TLM_WRITE), 0);
	CHECK_EQ(tlb_misses(tlb, 0x2000, 0x6000, TLM_READ), 1);
	/* 2 MB are one entry, which a TLB of small pages does not see. */
	CHECK_EQ(tlb_misses(tlb, kernel, 0x200000, TLM_READ | TLM_KERNEL | TLM_PAGE_2M), 1);
	CHECK_EQ(tlb_misses(tlb, kernel + 0x1ff000, 0x3ff000, TLM_READ | TLM_KERNEL | TLM_PAGE_2M),
		 0);
	CHECK_EQ(small->counts.references[TLM_READ | TLM_KERNEL], 0);
	/* CR3: what is the kernel's is global; with address-space numbers all stays. */
	tlm_hierarchy_cr3(hierarchy);
	CHECK_EQ(tlb_misses(tlb, kernel, 0x200000, TLM_READ | TLM_KERNEL | TLM_PAGE_2M), 0);
	CHECK_EQ(tlb_misses(tlb, 0x1000, 0x5000, TLM_READ), 1);
	CHECK_EQ(kept->counts.misses[TLM_READ], 2);
	/* Another process's page at the same address is another page. */
	CHECK_EQ(tlb_misses(kept, 0x1000, 0x9000, TLM_READ), 1);
	CHECK_EQ(tlb_misses(kept, 0x1000, 0x5000, TLM_READ), 0);
	tlm_hierarchy_flush(hierarchy);
	CHECK_EQ(tlb_misses(kept, kernel, 0x200000, TLM_READ | TLM_KERNEL | TLM_PAGE_2M), 1);
}

static uint64_t missed(struct tlm_structure *structure, uint64_t address, uint64_t access)
{
	return tlb_misses(structure, address, address, access);
}

/* User and kernel accesses each find their own, and evict nothing of the other's. */
static void modes_apart(void)
{
	struct tlm_geometry geometry = { .name = "c", .size = 128, .ways = 2, .apart = true };
	const uint64_t kernel = TLM_READ | TLM_KERNEL;
	struct tlm_structure *cache, *tlb;

	start();
	cache = add(geometry, "data");
	tlb = add((struct tlm_geometry){ .name = "t", .kind = TLM_TLB, .size = 2, .ways = 2,
					 .apart = true, .pages = TLM_HOLDS_4K },
		  "data");
	CHECK_EQ(misses(cache, "ab"), 2);
	CHECK_EQ(missed(cache, 0, kernel), 1); /* the same line, but not the kernel's */
	CHECK_EQ(missed(cache, 0, kernel), 0);
	CHECK_EQ(missed(cache, 128, kernel), 1);
	CHECK_EQ(missed(cache, 192, kernel), 1); /* for 0, among the kernel's alone */
	CHECK_EQ(misses(cache, "abab"), 0);
	CHECK_EQ(missed(cache, 0, kernel), 1);
	/* All that was on one page, in either mode. */
	CHECK_EQ(tlb->counts.misses[TLM_READ], 1);
	CHECK_EQ(tlb->counts.misses[kernel], 1);
	tlm_hierarchy_cr3(hierarchy); /* both parts are flushed: no address was the kernel's */
	CHECK_EQ(missed(tlb, 0, kernel), 1);
	CHECK_EQ(missed(tlb, 0, TLM_READ), 1);
}

/* What one mode writes leaves the other's cache, the latest line too; what both read stays. */
static void modes_coherent(void)
{
	struct tlm_geometry geometry = { .name = "1", .size = 128, .ways = 2, .apart = true,
					 .coherent = true };
	const uint64_t read = TLM_READ | TLM_KERNEL, write = TLM_WRITE | TLM_KERNEL;
	struct tlm_structure *first, *second;

	start();
	hierarchy->memory = 1 << 20;
	first = add(geometry, "data");
	geometry.name[0] = '2';
	geometry.size = 1024;
	second = add(geometry, "1");
	CHECK_EQ(missed(first, 0, TLM_READ), 1);
	CHECK_EQ(missed(first, 0, read), 1);
	CHECK_EQ(missed(first, 0, TLM_READ), 0); /* both hold it */
	CHECK_EQ(missed(first, 0, write), 0);
	CHECK_EQ(missed(first, 0, TLM_READ), 1); /* it was taken, from both caches */
	CHECK_EQ(second->counts.misses[TLM_READ], 2);
	CHECK_EQ(missed(first, 0, read), 0); /* to be read again takes nothing */
	CHECK_EQ(missed(first, 0, TLM_WRITE), 0);
	CHECK_EQ(missed(first, 0, TLM_WRITE), 0);
	CHECK_EQ(missed(first, 0, read), 1);
	CHECK_EQ(missed(first, 0, write), 0);
	CHECK_EQ(missed(first, 0, TLM_WRITE), 1);
	tlm_hierarchy_cold(hierarchy);
	CHECK_EQ(missed(first, 64, write), 1);
	CHECK_EQ(missed(first, 128, write), 1); /* of a line beside it takes nothing */
	CHECK_EQ(missed(first, 192, TLM_WRITE), 1);
	CHECK_EQ(missed(first, 64, read) + missed(first, 128, read), 0);
}

static void streams_apart(void)
{
	struct tlm_structure *cache;

	start();
	cache = add((struct tlm_geometry){ .name = "c", .size = 65536, .ways = 16, .streams = 1,
					   .ahead = 1, .apart = true },
		    "read");
	CHECK_EQ(misses(cache, "a"), 1);
	CHECK_EQ(missed(cache, 4096, TLM_READ | TLM_KERNEL), 1); /* takes no stream away */
	CHECK_EQ(misses(cache, "bc"), 1);
	CHECK_EQ(cache->counts.prefetches[0], 2);
	CHECK_EQ(cache->counts.prefetches[1], 0);
}

static void footprints(void)
{
	struct tlm_geometry geometry = { .name = "run", .kind = TLM_FOOTPRINT };
	const uint64_t kernel = TLM_READ | TLM_KERNEL;
	struct tlm_structure *run, *visit, *pages, *labelled;

	start();
	hierarchy->memory = 3 * 4096;
	run = add(geometry, "data");
	strcpy(geometry.name, "labelled");
	geometry.labelled = true;
	geometry.label = 3;
	labelled = add(geometry, "data");
	geometry = (struct tlm_geometry){ .name = "visit", .kind = TLM_FOOTPRINT,
					 .crossing = true };
	visit = add(geometry, "data,fetch");
	strcpy(geometry.name, "pages");
	geometry.line = 4096;
	pages = add(geometry, "data");

	CHECK_EQ(misses(run, "abcabz"), 4);
	CHECK_EQ(visit->counts.misses[TLM_READ], 4);
	CHECK_EQ(pages->counts.misses[TLM_READ], 1);
	CHECK_EQ(missed(run, 0, kernel), 1); /* the kernel's own */
	CHECK_EQ(misses(visit, "ab"), 2);    /* another visit */
	CHECK_EQ(misses(run, "ab"), 0);
	CHECK_EQ(visit->counts.misses[kernel], 1);
	CHECK_EQ(pages->counts.misses[TLM_READ], 2);
	/* A change of mode is seen where the access itself does not count. */
	tlm_hierarchy_access(hierarchy, 0, 0, TLM_FETCH | TLM_KERNEL);
	CHECK_EQ(misses(visit, "a"), 1);
	/* The last byte of memory, and the first beyond it. */
	CHECK_EQ(missed(run, 3 * 4096 - 1, TLM_WRITE), 1);
	CHECK_EQ(missed(run, 3 * 4096, TLM_WRITE), 0);
	CHECK_EQ(labelled->counts.references[TLM_READ], 0);
	tlm_hierarchy_label(hierarchy, 3);
	CHECK_EQ(misses(labelled, "aba"), 2);
	tlm_hierarchy_label(hierarchy, 4);
	CHECK_EQ(misses(labelled, "c"), 0);
	tlm_hierarchy_cold(hierarchy);
	CHECK_EQ(misses(run, "abc"), 3);
}

static void colours(void)
{
	static uint8_t taken[1 << 16];
	uint64_t page, moved = 0;

	/* A permutation: seen on 2^16 pages through the colours of a cache of 2^16 of them. */
	for (page = 0; page < 1 << 16; page++) {
		uint64_t at = tlm_colour(page, 7);

		CHECK(at < 1ull << 32);
		moved += (at & 63) != (page & 63);
		taken[at & 0xffff]++;
	}
	CHECK(moved > 60000); /* of 64 colours, one in 64 pages keeps its own by chance */
	CHECK(tlm_colour(1, 7) != tlm_colour(1, 8));
	CHECK_EQ(tlm_colour(1ull << 33 | 5, 7) >> 33, 1);
}

int main(void)
{
	lru();
	plru();
	sets();
	writes();
	prefetches();
	tlbs();
	modes_apart();
	modes_coherent();
	streams_apart();
	footprints();
	colours();
	tlm_hierarchy_destroy(hierarchy);
	return 0;
}
