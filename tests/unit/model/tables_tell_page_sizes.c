/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Page tables laid out by hand in a few pages of memory: found among pages that look like them, and
 * walked to pages of every size.
 */
#include "check.h"
#include "structure.h"
#include "page_tables.h"

#include <string.h>

#define PAGES 64
#define IMAGE 0xffffffff81234000ull  /* 2 MB: at physical 4 MB */
#define STACK 0xffffc90000005000ull  /* 4 KB: at physical 0x9000 */
#define DIRECT 0xffff888040000000ull /* 1 GB: at physical 1 GB */
#define DIRECT_5 0xff11000040000000ull /* the same under five levels */
#define NOWHERE 0xffd4000000000000ull

static uint64_t memory[PAGES][512];

static unsigned int index_of(uint64_t virtual, unsigned int level)
{
	return virtual >> (12 + 9 * (level - 1)) & 511;
}

/* Map by the table in page `top` of so many levels; new tables are pages from `from` on. */
static void map(unsigned int top, unsigned int levels, unsigned int from, uint64_t virtual,
		uint64_t physical, unsigned int last)
{
	unsigned int level, table = top;

	for (level = levels; level > last; level--) {
		uint64_t *entry = &memory[table][index_of(virtual, level)];

		if (!*entry)
			*entry = (uint64_t)from++ << 12 | 1;
		table = *entry >> 12;
	}
	memory[table][index_of(virtual, last)] = physical | 1 | (last > 1 ? 0x80 : 0);
}

static void map_all(unsigned int top, unsigned int levels)
{
	map(top, levels, top + 1, IMAGE, 4 << 20, 2);
	map(top, levels, top + 5, STACK, 0x9000, 1);
	map(top, levels, top + 10, levels == 4 ? DIRECT : DIRECT_5, 1 << 30, 3);
}

static void check_sizes(struct tlm_tables *tables, unsigned int top, unsigned int levels)
{
	uint64_t page;

	CHECK(tlm_tables_page(tables, IMAGE, 0x434000, &page));
	CHECK_EQ(page, TLM_PAGE_2M);
	CHECK(tlm_tables_page(tables, STACK + 0x123, 0x9123, &page));
	CHECK_EQ(page, 0);
	CHECK(tlm_tables_page(tables, (levels == 4 ? DIRECT : DIRECT_5) + 0x654321, 0x40654321,
			      &page));
	CHECK_EQ(page, TLM_PAGE_1G);
	CHECK_EQ(tables->top, top << 12);
	CHECK_EQ(tables->levels, levels);
}

static struct tlm_tables start(void)
{
	memset(memory, 0, sizeof(memory));
	return (struct tlm_tables){ .memory = (const uint8_t *)memory, .bytes = sizeof(memory) };
}

int main(void)
{
	struct tlm_tables tables = start();
	uint64_t page;

	CHECK(!tlm_tables_page(&tables, IMAGE, 0x434000, &page)); /* there is nothing */
	map_all(20, 4);
	check_sizes(&tables, 20, 4);

	/* Before it one with a part of the same mappings: enough, until more is asked. */
	tables = start();
	map(3, 4, 4, IMAGE, 4 << 20, 2);
	map_all(20, 4);
	CHECK(tlm_tables_page(&tables, IMAGE, 0x434000, &page));
	CHECK_EQ(tables.top, 3 << 12);
	check_sizes(&tables, 20, 4);
	CHECK_EQ(tables.searches, 2);

	tables = start();
	map_all(20, 5);
	check_sizes(&tables, 20, 5);

	/* A mapping that changed is read anew; what was known before it is forgotten when told. */
	map(20, 5, PAGES, STACK, 0x7000, 1);
	tlm_tables_forget(&tables);
	CHECK(tlm_tables_page(&tables, STACK, 0x7000, &page));
	CHECK_EQ(page, 0);

	/* Tables that point out of memory are none; searching ends at some time. */
	memory[20][index_of(NOWHERE, 5)] = 1ull << 40 | 1;
	while (tables.searches < TLM_TABLES_SEARCHES_MAX)
		CHECK(!tlm_tables_page(&tables, NOWHERE, 0x40000000, &page));
	CHECK(!tlm_tables_page(&tables, NOWHERE, 0x40000000, &page));
	CHECK_EQ(tables.searches, TLM_TABLES_SEARCHES_MAX);
	return 0;
}
