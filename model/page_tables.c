// SPDX-License-Identifier: GPL-2.0-only
/*
 * Finds the kernel's top page table in the guest's memory and walks it. The table is the first page
 * that, read as a top table, translates every address whose place is known. Each process has a copy
 * of the table's upper half; the first one in memory is the kernel's own, which stays. Should the
 * search have found another page, that page gives a wrong translation one day; the search then
 * begins again, and that address is known, too.
 */
#include "page_tables.h"
#include "structure.h"

#include <string.h>

#define TABLE_BYTES 4096u
#define INDEX_BITS 9
#define PRESENT (1ull << 0)
#define LARGE (1ull << 7)
#define ADDRESS 0x000ffffffffff000ull

static bool entry(const struct tlm_tables *tables, uint64_t table, uint64_t virtual,
		  unsigned int shift, uint64_t *to)
{
	uint64_t index = virtual >> shift & ((1 << INDEX_BITS) - 1);

	if (table + TABLE_BYTES > tables->bytes)
		return false;
	memcpy(to, tables->memory + table + index * sizeof(*to), sizeof(*to));
	return *to & PRESENT;
}

/* Whether the top table leads from `virtual` to `physical`, and by which size of page. */
static bool leads(const struct tlm_tables *tables, uint64_t top, unsigned int levels,
		  uint64_t virtual, uint64_t physical, uint64_t *page)
{
	unsigned int shift = TLM_PAGE_BITS + INDEX_BITS * (levels - 1);
	uint64_t at = top, inside;

	for (; ; shift -= INDEX_BITS) {
		if (!entry(tables, at & ADDRESS, virtual, shift, &at))
			return false;
		if (shift == TLM_PAGE_BITS)
			break;
		if (at & LARGE && shift <= TLM_PAGE_BITS + 2 * INDEX_BITS)
			break;
	}
	inside = (1ull << shift) - 1;
	*page = shift == TLM_PAGE_BITS ? 0 :
		shift == TLM_PAGE_BITS + INDEX_BITS ? TLM_PAGE_2M : TLM_PAGE_1G;
	return ((at & ADDRESS & ~inside) | (virtual & inside)) == physical;
}

static bool fits(const struct tlm_tables *tables, uint64_t top, unsigned int levels)
{
	uint64_t page;
	unsigned int i;

	for (i = 0; i < tables->known; i++)
		if (!leads(tables, top, levels, tables->right[i].virtual, tables->right[i].physical,
			   &page))
			return false;
	return true;
}

static void search(struct tlm_tables *tables)
{
	uint64_t top;

	tables->levels = 0;
	if (tables->searches == TLM_TABLES_SEARCHES_MAX)
		return;
	tables->searches++;
	for (tables->levels = 4; tables->levels <= 5; tables->levels++)
		for (top = 0; top + TABLE_BYTES <= tables->bytes; top += TABLE_BYTES)
			if (fits(tables, top, tables->levels)) {
				tables->top = top;
				return;
			}
	tables->levels = 0;
}

static void note(struct tlm_tables *tables, uint64_t virtual, uint64_t physical)
{
	if (tables->known == TLM_TABLES_KNOWN)
		memmove(tables->right, tables->right + 1,
			--tables->known * sizeof(tables->right[0]));
	tables->right[tables->known].virtual = virtual;
	tables->right[tables->known].physical = physical;
	tables->known++;
}

bool tlm_tables_page(struct tlm_tables *tables, uint64_t virtual, uint64_t physical,
		     uint64_t *page)
{
	if (tables->levels &&
	    leads(tables, tables->top, tables->levels, virtual, physical, page)) {
		note(tables, virtual, physical);
		return true;
	}
	note(tables, virtual, physical);
	search(tables);
	return tables->levels &&
	       leads(tables, tables->top, tables->levels, virtual, physical, page);
}

void tlm_tables_forget(struct tlm_tables *tables)
{
	tables->known = 0;
}
