// SPDX-License-Identifier: GPL-2.0-only
/*
 * See hits.h. The kernel's memory is /proc/kcore, an ELF core with a table of addresses. The
 * structures are twins of kmod/probe/layout.h's.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hits.h"
#include "measure.h"

#define SYMBOLS "/proc/kallsyms"
#define KERNEL_MEMORY "/proc/kcore"
#define SYMBOL "tlk_probe_map"
#define SITES_MAX 65536u

struct probe_map {
	char magic[8];
	uint32_t size, active, sites, record_bytes;
	uint64_t records, site;
};

struct probe_site {
	uint64_t address;
	uint32_t kind, count;
};

static uint64_t symbol(const char *name)
{
	FILE *file = fopen(SYMBOLS, "re");
	uint64_t address, found = 0;
	char line[512], word[256];

	while (file && !found && fgets(line, sizeof(line), file))
		if (sscanf(line, "%" SCNx64 " %*c %255s", &address, word) == 2 &&
		    !strcmp(word, name))
			found = address;
	if (!found)
		measure_fail("%s is not in %s", name, SYMBOLS);
	fclose(file);
	return found;
}

static void read_at(int file, off_t offset, void *into, size_t bytes)
{
	if (pread(file, into, bytes, offset) != (ssize_t)bytes)
		measure_fail("%s, offset %#jx: %s", KERNEL_MEMORY, (intmax_t)offset,
			     strerror(errno));
}

static void read_kernel(int file, uint64_t address, void *into, size_t bytes)
{
	Elf64_Ehdr head;
	Elf64_Phdr range;

	read_at(file, 0, &head, sizeof(head));
	for (unsigned int i = 0; i < head.e_phnum; i++) {
		read_at(file, (off_t)(head.e_phoff + i * sizeof(range)), &range, sizeof(range));
		if (range.p_type == PT_LOAD && address >= range.p_vaddr &&
		    address - range.p_vaddr < range.p_memsz) {
			read_at(file, (off_t)(range.p_offset + (address - range.p_vaddr)), into,
				bytes);
			return;
		}
	}
	measure_fail("%#" PRIx64 " is not in %s", address, KERNEL_MEMORY);
}

uint64_t hits_made(void)
{
	static uint64_t map_address;	/* of a module that stays: its table is long to read */
	int file = open(KERNEL_MEMORY, O_RDONLY | O_CLOEXEC);
	struct probe_site *sites;
	struct probe_map map;
	uint64_t sum = 0;

	if (file < 0)
		measure_fail("%s: %s", KERNEL_MEMORY, strerror(errno));
	if (!map_address)
		map_address = symbol(SYMBOL);
	read_kernel(file, map_address, &map, sizeof(map));
	if (memcmp(map.magic, "TLPROBE1", sizeof(map.magic)) || !map.sites ||
	    map.sites > SITES_MAX)
		measure_fail("%s is not the map of probes that it should be", SYMBOL);
	sites = calloc(map.sites, sizeof(*sites));
	if (!sites)
		measure_fail("no memory for %u sites", map.sites);
	read_kernel(file, map.site, sites, map.sites * sizeof(*sites));
	for (unsigned int i = 0; i < map.sites; i++)
		sum += sites[i].count;
	free(sites);
	close(file);
	return sum;
}
