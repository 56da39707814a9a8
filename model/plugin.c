// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The model inside QEMU. While marks ask for it (trapless_model.h), the plugin passes the
 * instructions and accesses of the guest's program and kernel to the hierarchy, and writes regions
 * as rows. One source serves the versions 1 and 4 of the plugin interface.
 *
 * Outside modelling the plugin only looks for marks when code is translated. Turning modelling on
 * or off makes QEMU forget all translated code (qemu_plugin_reset), so that no instruction carries
 * a check. The guest has one processor, and every callback comes from its thread, so nothing here
 * is locked.
 */
#include "config.h"
#include "ledger.h"
#include <trapless_model.h>
#include "qemu_api.h"
#include "recorder.h"
#include "page_tables.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MARK_BYTES 7
#define INSTRUCTION_BYTES_MAX 15
#define BLOCK_LINES_MAX 128
#define PLACES 4096 /* translations remembered; a power of two */
#define PAGE_MASK ((1ull << TLM_PAGE_BITS) - 1)

int qemu_plugin_version = TLM_QEMU_API;

/* Where a page lies, as the latest access to it found. */
struct place {
	uint64_t page; /* virtual page number, plus 1; 0: none */
	uint64_t physical;
	uint64_t flags; /* TLM_PAGE_*, or UNPLACED */
};

#define UNPLACED (~0ull)

/* A block of translated code; it lives until QEMU forgets its translations. */
struct block {
	struct block *next;
	struct tlm_mode_counts *counts;
	uint64_t flags; /* TLM_FETCH, with TLM_KERNEL */
	uint32_t instructions;
	uint32_t lines;
	struct {
		uint64_t virtual;
		uint64_t physical;
		uint64_t page;
	} line[];
};

static struct tlm_config config;
static struct tlm_recorder recorder;
static qemu_plugin_id_t plugin;
static bool modelling;
static bool block_seen; /* since modelling was turned on */
static struct place places[PLACES];
static struct block *blocks;
static const struct block *running;
static uint64_t fetched; /* physical address of the line of code entered last */
static uintptr_t ram;	 /* where QEMU has the guest's memory; 0: not yet looked for */
static bool offset_known;
static uint64_t offset; /* of the guest's memory among all that QEMU has */
static struct tlm_tables tables;
static bool sizes_unknown; /* of some pages of the kernel's half */

static void forget_places(void)
{
	memset(places, 0, sizeof(places));
	tlm_tables_forget(&tables);
}

static void forget_blocks(qemu_plugin_id_t id)
{
	(void)id;
	while (blocks) {
		struct block *next = blocks->next;

		free(blocks);
		blocks = next;
	}
	running = NULL;
}

/* The size of the page that maps an address, as an access's flag. */
static uint64_t page_of(uint64_t virtual, uint64_t physical)
{
	uint64_t page;

	if (!(virtual >> 63))
		return tlm_config_page(&config, virtual);
	if (tlm_tables_page(&tables, virtual, physical, &page))
		return page;
	sizes_unknown = true;
	return tlm_config_page(&config, virtual);
}

/*
 * QEMU before 8.2 (upstream: "plugin: Simplify struct qemu_plugin_hwaddr") tells where an access
 * goes as a place among all memory that it has, of devices, too. Where code is we know by
 * ourselves, and reading there would go to the same place: the difference holds for all of the
 * guest's memory.
 */
static bool learn_offset(qemu_plugin_meminfo_t info)
{
	const struct qemu_plugin_hwaddr *found;
	uint64_t difference;

	if (qemu_plugin_mem_is_store(info) || !running || !running->lines)
		return false;
	found = qemu_plugin_get_hwaddr(info, running->line[0].virtual);
	if (!found || qemu_plugin_hwaddr_is_io(found))
		return false;
	difference = qemu_plugin_hwaddr_phys_addr(found) - running->line[0].physical;
	if (difference & PAGE_MASK)
		return false;
	offset = difference;
	offset_known = true;
	return true;
}

static struct place *place_of(qemu_plugin_meminfo_t info, uint64_t address)
{
	uint64_t page = address >> TLM_PAGE_BITS;
	struct place *place = &places[(page ^ page >> 20) & (PLACES - 1)];
	struct qemu_plugin_hwaddr *found;

	if (__builtin_expect(place->page == page + 1, 1))
		return place;
	place->page = 0; /* what is not known now may be the next time */
	place->flags = UNPLACED;
	if (!offset_known && !learn_offset(info))
		return place;
	found = qemu_plugin_get_hwaddr(info, address);
	if (!found || qemu_plugin_hwaddr_is_io(found))
		return place;
	place->page = page + 1;
	place->physical = (qemu_plugin_hwaddr_phys_addr(found) - offset) & ~PAGE_MASK;
	place->flags = page_of(address & ~PAGE_MASK, place->physical);
	return place;
}

static void on_access(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address,
		      void *userdata)
{
	uint64_t mode = (uintptr_t)userdata; /* 0 or TLM_KERNEL */
	struct tlm_mode_counts *counts = &recorder.modes[mode != 0];
	uint64_t bytes = 1ull << qemu_plugin_mem_size_shift(info), access, crossing;
	struct place *place;

	(void)vcpu;
	/* QEMU before 8.0 also tells what the processor pushes when a user's instruction traps. */
	if (!mode && address >> 63)
		return;
	place = place_of(info, address);
	if (place->flags == UNPLACED) {
		counts->unplaced++;
		return;
	}
	if (qemu_plugin_mem_is_store(info)) {
		access = TLM_WRITE | mode;
		counts->writes++;
	} else {
		access = TLM_READ | mode;
		counts->reads++;
	}
	tlm_hierarchy_access(config.hierarchy, address, place->physical | (address & PAGE_MASK),
			     access | place->flags);
	crossing = (address & (TLM_FETCH_LINE - 1)) + bytes;
	if (__builtin_expect(crossing <= TLM_FETCH_LINE, 1))
		return;
	address += bytes - 1;
	place = place_of(info, address);
	if (place->flags != UNPLACED)
		tlm_hierarchy_access(config.hierarchy, address,
				     place->physical | (address & PAGE_MASK),
				     access | place->flags);
}

static void on_block(unsigned int vcpu, void *userdata)
{
	struct block *block = userdata;
	uint32_t i;

	(void)vcpu;
	running = block;
	if (!block_seen) {
		tlm_ledger_start(&recorder.ledger, block->flags & TLM_KERNEL);
		block_seen = true;
	}
	tlm_ledger_block(&recorder.ledger, block->flags & TLM_KERNEL);
	if (recorder.awaits_user && !(block->flags & TLM_KERNEL))
		tlm_recorder_enter_user(&recorder);
	block->counts->instructions += block->instructions;
	for (i = 0; i < block->lines; i++) {
		if (block->line[i].physical == fetched)
			continue;
		fetched = block->line[i].physical;
		block->counts->fetches++;
		tlm_hierarchy_access(config.hierarchy, block->line[i].virtual, fetched,
				     block->flags | block->line[i].page);
	}
}

static void on_crossing(unsigned int vcpu, void *userdata)
{
	enum tlm_crossing crossing = (uintptr_t)userdata;

	(void)vcpu;
	tlm_ledger_instruction(&recorder.ledger, crossing);
	switch (crossing) {
	case TLM_CR3:
		forget_places();
		tlm_hierarchy_cr3(config.hierarchy);
		break;
	case TLM_CR4:
	case TLM_INVPCID:
		forget_places();
		tlm_hierarchy_flush(config.hierarchy);
		break;
	case TLM_INVLPG:
		/* Which page is not known here; its entry stays, unused, as its frame changes. */
		forget_places();
		break;
	default:
		break;
	}
}

static void arm(qemu_plugin_id_t id);

/* Turn modelling on or off: when this mark's block ends, all code is translated anew. */
static void turn(bool on)
{
	if (modelling == on)
		return;
	modelling = on;
	qemu_plugin_reset(plugin, arm);
}

static void cold(void)
{
	tlm_hierarchy_cold(config.hierarchy);
	fetched = ~0ull;
}

static void on_mark(unsigned int vcpu, void *userdata)
{
	uint32_t mark = (uintptr_t)userdata;

	(void)vcpu;
	if ((mark & ~15u) == TL_MODEL_MARK_NIBBLE) {
		recorder.label = recorder.label << 4 | (mark & 15);
		return;
	}
	switch (mark) {
	case TL_MODEL_MARK_ON:
		cold();
		turn(true);
		break;
	case TL_MODEL_MARK_OFF:
		turn(false);
		break;
	case TL_MODEL_MARK_COLD:
		cold();
		break;
	case TL_MODEL_MARK_BEGIN:
		if (modelling)
			tlm_recorder_begin(&recorder);
		else
			tlm_recorder_event(&recorder, "a region began while the model was off");
		break;
	case TL_MODEL_MARK_END:
		tlm_recorder_end(&recorder);
		break;
	default:
		tlm_recorder_event(&recorder, "an unknown mark");
	}
}

/* The guest's memory among QEMU's own mappings: the one with this address in it, and its size. */
static void find_ram(uintptr_t inside)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	unsigned long first, end;
	char *line = NULL;
	size_t room = 0;

	while (maps && getline(&line, &room, maps) >= 0)
		if (sscanf(line, "%lx-%lx", &first, &end) == 2 && inside >= first && inside < end &&
		    end - first == config.hierarchy->memory)
			ram = first;
	tables.memory = (const uint8_t *)ram;
	tables.bytes = ram ? config.hierarchy->memory : 0;
	free(line);
	if (maps)
		fclose(maps);
}

/* Note the instruction's line of code, unless it is noted; code outside memory has none. */
static void add_line(struct block *block, const struct qemu_plugin_insn *instruction)
{
	uintptr_t host = (uintptr_t)qemu_plugin_insn_haddr(instruction);
	uint64_t virtual = qemu_plugin_insn_vaddr(instruction) & ~(TLM_FETCH_LINE - 1ull);
	uint64_t physical;

	if (!ram && host)
		find_ram(host);
	if (!ram || host < ram || host - ram >= config.hierarchy->memory)
		return;
	physical = (host - ram) & ~(TLM_FETCH_LINE - 1ull);
	if (block->lines && block->line[block->lines - 1].physical == physical)
		return;
	if (block->lines == BLOCK_LINES_MAX)
		return;
	block->line[block->lines].virtual = virtual;
	block->line[block->lines].physical = physical;
	block->line[block->lines].page = page_of(virtual, physical);
	block->lines++;
}

static size_t bytes_of(const struct qemu_plugin_insn *instruction,
		       uint8_t code[INSTRUCTION_BYTES_MAX])
{
	size_t bytes = qemu_plugin_insn_size(instruction);

	if (bytes > INSTRUCTION_BYTES_MAX)
		bytes = INSTRUCTION_BYTES_MAX;
#if TLM_QEMU_API == 1
	memcpy(code, qemu_plugin_insn_data(instruction), bytes);
	return bytes;
#else
	return qemu_plugin_insn_data(instruction, code, bytes);
#endif
}

static void look_for_mark(struct qemu_plugin_insn *instruction, const uint8_t *code)
{
	uint32_t value;

	memcpy(&value, code + 3, sizeof(value));
	if (code[0] == 0x0f && code[1] == 0x1f && code[2] == 0x80 &&
	    (value & TL_MODEL_MARK_MASK) == TL_MODEL_MARK)
		qemu_plugin_register_vcpu_insn_exec_cb(
			instruction, on_mark, QEMU_PLUGIN_CB_NO_REGS,
			(void *)(uintptr_t)(value & ~TL_MODEL_MARK_MASK));
}

static void instrument(struct qemu_plugin_insn *instruction, uint64_t mode, const uint8_t *code,
		       size_t bytes)
{
	enum tlm_crossing crossing = tlm_ledger_classify(code, bytes);

	if (crossing != TLM_NO_CROSSING)
		qemu_plugin_register_vcpu_insn_exec_cb(instruction, on_crossing,
						       QEMU_PLUGIN_CB_NO_REGS,
						       (void *)(uintptr_t)crossing);
	qemu_plugin_register_vcpu_mem_cb(instruction, on_access, QEMU_PLUGIN_CB_NO_REGS,
					 QEMU_PLUGIN_MEM_RW, (void *)(uintptr_t)mode);
}

static void on_translation(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	size_t n = qemu_plugin_tb_n_insns(tb), i, bytes;
	bool kernel = qemu_plugin_tb_vaddr(tb) >> 63;
	uint8_t code[INSTRUCTION_BYTES_MAX];
	struct block *block = NULL;

	(void)id;
	if (modelling) {
		block = malloc(sizeof(*block) + BLOCK_LINES_MAX * sizeof(block->line[0]));
		if (!block)
			abort(); /* what is not counted would be a wrong row */
		block->counts = &recorder.modes[kernel];
		block->flags = TLM_FETCH | (kernel ? TLM_KERNEL : 0);
		block->instructions = n;
		block->lines = 0;
	}
	for (i = 0; i < n; i++) {
		struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(tb, i);

		if (!modelling && qemu_plugin_insn_size(instruction) != MARK_BYTES)
			continue;
		bytes = bytes_of(instruction, code);
		if (bytes == MARK_BYTES)
			look_for_mark(instruction, code);
		if (modelling) {
			instrument(instruction, block->flags & TLM_KERNEL, code, bytes);
			add_line(block, instruction);
		}
	}
	if (!block)
		return;
	block = realloc(block, sizeof(*block) + block->lines * sizeof(block->line[0])) ?: block;
	block->next = blocks;
	blocks = block;
	qemu_plugin_register_vcpu_tb_exec_cb(tb, on_block, QEMU_PLUGIN_CB_NO_REGS, block);
}

static void on_exit_of_qemu(qemu_plugin_id_t id, void *userdata)
{
	(void)id;
	(void)userdata;
	if (recorder.rows && !ram)
		tlm_recorder_event(&recorder, "the guest's memory was not found: no fetches");
	if (recorder.rows && sizes_unknown)
		tlm_recorder_event(&recorder, "the kernel's page tables were not found: some of "
					      "its pages count as 4 KB");
	tlm_recorder_stop(&recorder);
}

/* Also what QEMU calls when it has forgotten all translations and every callback. */
static void arm(qemu_plugin_id_t id)
{
	forget_places();
	block_seen = false;
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
	qemu_plugin_register_flush_cb(id, forget_blocks);
	qemu_plugin_register_atexit_cb(id, on_exit_of_qemu, NULL);
}

static int complain(const char *what, const char *why)
{
	fprintf(stderr, "trapless-model: %s: %s\n", what, why);
	return -1;
}

static int open_files(const char *input, const char *output)
{
	char error[TLM_ERROR_MAX];
	FILE *file;
	int result;

	if (!input || !output)
		return complain("arguments", "config=FILE and output=FILE are needed");
	file = fopen(input, "re");
	if (!file)
		return complain(input, strerror(errno));
	result = tlm_config_read(&config, file, error);
	fclose(file);
	if (result)
		return complain(input, error);
	if (!config.hierarchy->memory)
		return complain(input, "`memory BYTES` is missing");
	recorder.hierarchy = config.hierarchy;
	recorder.output = fopen(output, "we");
	if (!recorder.output)
		return complain(output, strerror(errno));
	return 0;
}

int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
	const char *input = NULL, *output = NULL;
	int i;

	for (i = 0; i < argc; i++) {
		if (strncmp(argv[i], "config=", 7) == 0)
			input = argv[i] + 7;
		else if (strncmp(argv[i], "output=", 7) == 0)
			output = argv[i] + 7;
		else
			return complain(argv[i], "neither config=FILE nor output=FILE");
	}
	if (strcmp(info->target_name, "x86_64") != 0 || !info->system_emulation)
		return complain(info->target_name, "only whole x86_64 machines are modelled");
	if (info->system.max_vcpus != 1)
		return complain("-smp", "the model follows one processor; give the guest one");
	if (open_files(input, output))
		return -1;
	plugin = id;
	cold();
	tlm_recorder_start(&recorder, TLM_QEMU_API);
	arm(id);
	return 0;
}
