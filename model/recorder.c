// SPDX-License-Identifier: GPL-2.0-only
/*
 * Writes rows. It owns the order of columns, which is that of collect(); describe() names them in
 * the same order.
 */
#include "recorder.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define NUMBER_MAX 20 /* digits of 64 bits */
#define NOBODY (1u << TLM_LABELS) /* of the ledger, outside regions */

static const char *const mode_names[2] = { "user", "kernel" };
static const char *const kind_names[3] = { "read", "write", "fetch" };
static const char *const policy_names[] = { "lru", "plru", "random" };
static const char *const flush_names[] = { "nonglobal", "all", "none" };

static void written(struct tlm_recorder *recorder)
{
	if (fflush(recorder->output) == 0 || recorder->failed)
		return;
	recorder->failed = true;
	fprintf(stderr, "trapless-model: rows cannot be written: %s\n", strerror(errno));
}

static size_t collect_structure(const struct tlm_counts *counts, unsigned int mode, uint64_t *to)
{
	size_t n = 0;
	int kind;

	for (kind = 0; kind < 3; kind++) {
		unsigned int at = 1 << kind | (mode ? TLM_KERNEL : 0);

		to[n++] = counts->references[at];
		to[n++] = counts->misses[at];
	}
	to[n++] = counts->prefetches[mode];
	return n;
}

static size_t collect(struct tlm_recorder *recorder, uint64_t to[TLM_COLUMNS_MAX])
{
	unsigned int mode, i;
	size_t n = 0;

	tlm_hierarchy_drain(recorder->hierarchy);
	for (mode = 0; mode < 2; mode++) {
		const struct tlm_mode_counts *counts = &recorder->modes[mode];

		to[n++] = counts->instructions;
		to[n++] = counts->reads;
		to[n++] = counts->writes;
		to[n++] = counts->fetches;
		to[n++] = counts->unplaced;
		for (i = 0; i < recorder->hierarchy->count; i++)
			n += collect_structure(&recorder->hierarchy->structures[i].counts, mode,
					       to + n);
	}
	memcpy(to + n, recorder->ledger.counts, sizeof(recorder->ledger.counts));
	n += TLM_CROSSINGS;
	to[n++] = recorder->before_user;
	return n;
}

static void describe_columns(struct tlm_recorder *recorder)
{
	FILE *output = recorder->output;
	unsigned int mode, i, kind;

	fputs("\"columns\": [", output);
	for (mode = 0; mode < 2; mode++) {
		const char *name = mode_names[mode];

		fprintf(output,
			"\"%s.instructions\", \"%s.reads\", \"%s.writes\", \"%s.fetches\", "
			"\"%s.unplaced\", ",
			name, name, name, name, name);
		for (i = 0; i < recorder->hierarchy->count; i++) {
			const char *structure = recorder->hierarchy->structures[i].geometry.name;

			for (kind = 0; kind < 3; kind++)
				fprintf(output,
					"\"%s.%s.%s_references\", \"%s.%s.%s_misses\", ", name,
					structure, kind_names[kind], name, structure,
					kind_names[kind]);
			fprintf(output, "\"%s.%s.prefetches\", ", name, structure);
		}
	}
	for (i = 0; i < TLM_CROSSINGS; i++)
		fprintf(output, "%s\"crossings.%s\"", i ? ", " : "", tlm_crossing_names[i]);
	fputs(", \"kernel.before_user\"]", output);
}

/* What feeds it, by name. */
static void describe_sources(struct tlm_recorder *recorder, uint64_t from)
{
	const char *separator = "";
	unsigned int i;

	for (i = 0; i < 3; i++) {
		if (from >> i & 1) {
			fprintf(recorder->output, "%s\"%s\"", separator, kind_names[i]);
			separator = ", ";
		}
	}
	for (i = 0; i < recorder->hierarchy->count; i++) {
		if (from >> (TLM_PASSED + i) & 1) {
			fprintf(recorder->output, "%s\"%s\"", separator,
				recorder->hierarchy->structures[i].geometry.name);
			separator = ", ";
		}
	}
}

static void describe_footprint(struct tlm_recorder *recorder, const struct tlm_geometry *geometry)
{
	fprintf(recorder->output,
		"{\"name\": \"%s\", \"kind\": \"footprint\", \"unit_bytes\": %u, "
		"\"empty\": \"%s\", ",
		geometry->name, geometry->line, geometry->crossing ? "crossing" : "never");
	if (geometry->labelled)
		fprintf(recorder->output, "\"label\": %u, ", geometry->label);
}

static void describe_cache(struct tlm_recorder *recorder, const struct tlm_geometry *geometry)
{
	fprintf(recorder->output,
		"\"kind\": \"cache\", \"bytes\": %" PRIu64 ", \"line_bytes\": %u, "
		"\"write\": \"%s\", \"streams\": %u, \"ahead\": %u, \"colour\": %" PRIu64 ", ",
		geometry->size, geometry->line, geometry->through ? "through" : "back",
		geometry->streams, geometry->ahead, geometry->colour);
}

static void describe_tlb(struct tlm_recorder *recorder, const struct tlm_geometry *geometry)
{
	fprintf(recorder->output,
		"\"kind\": \"tlb\", \"entries\": %" PRIu64 ", \"page_bytes\": [%s%s%s], "
		"\"flush\": \"%s\", ",
		geometry->size, geometry->pages & TLM_HOLDS_4K ? "4096" : "",
		geometry->pages & TLM_HOLDS_2M ?
			(geometry->pages & TLM_HOLDS_4K ? ", 2097152" : "2097152") : "",
		geometry->pages & TLM_HOLDS_1G ?
			(geometry->pages & 3 ? ", 1073741824" : "1073741824") : "",
		flush_names[geometry->flush]);
}

static void describe_structure(struct tlm_recorder *recorder, const struct tlm_geometry *geometry)
{
	FILE *output = recorder->output;

	if (geometry->kind == TLM_FOOTPRINT) {
		describe_footprint(recorder, geometry);
	} else {
		fprintf(output,
			"{\"name\": \"%s\", \"policy\": \"%s\", \"ways\": %u, \"modes\": \"%s\", ",
			geometry->name, policy_names[geometry->policy], geometry->ways,
			geometry->apart ? "apart" : "shared");
		if (geometry->kind == TLM_CACHE)
			describe_cache(recorder, geometry);
		else
			describe_tlb(recorder, geometry);
		fprintf(output, "\"seed\": %" PRIu64 ", ", geometry->seed);
	}
	fputs("\"from\": [", output);
	describe_sources(recorder, geometry->from);
	fputs("]}", output);
}

void tlm_recorder_start(struct tlm_recorder *recorder, int qemu_api)
{
	struct tlm_hierarchy *hierarchy = recorder->hierarchy;
	unsigned int i;

	recorder->ledger.who = NOBODY;
	fprintf(recorder->output,
		"{\"format\": \"trapless-model\", \"version\": %d, \"qemu_api\": %d, "
		"\"memory_bytes\": %" PRIu64 ", \"fetch_line_bytes\": %d, \"structures\": [",
		TLM_FORMAT_VERSION, qemu_api, hierarchy->memory, TLM_FETCH_LINE);
	for (i = 0; i < hierarchy->count; i++) {
		fputs(i ? ", " : "", recorder->output);
		describe_structure(recorder, &hierarchy->structures[i].geometry);
	}
	fputs("], ", recorder->output);
	describe_columns(recorder);
	fputs("}\n", recorder->output);
	written(recorder);
}

void tlm_recorder_begin(struct tlm_recorder *recorder)
{
	if (recorder->open)
		tlm_recorder_event(recorder, "a region began inside another, which is given up");
	recorder->open = true;
	collect(recorder, recorder->begun);
	tlm_hierarchy_label(recorder->hierarchy, recorder->label % TLM_LABELS);
	recorder->ledger.who = 1u << recorder->label % TLM_LABELS;
	recorder->kernel_begun = recorder->modes[1].instructions;
	recorder->awaits_user = true;
}

void tlm_recorder_enter_user(struct tlm_recorder *recorder)
{
	recorder->before_user += recorder->modes[1].instructions - recorder->kernel_begun;
	recorder->awaits_user = false;
}

/* Decimal digits of `value`; as many as that. Rows are long and many: printf would be most of a
 * region's end. */
static size_t put(char *to, uint64_t value)
{
	char digits[NUMBER_MAX];
	size_t n = 0, i;

	do
		digits[n++] = '0' + value % 10;
	while (value /= 10);
	for (i = 0; i < n; i++)
		to[i] = digits[n - 1 - i];
	return n;
}

void tlm_recorder_end(struct tlm_recorder *recorder)
{
	uint64_t now[TLM_COLUMNS_MAX];
	char counts[TLM_COLUMNS_MAX * (NUMBER_MAX + 1)];
	size_t columns, i, n = 0;

	if (!recorder->open) {
		tlm_recorder_event(recorder, "a region ended that had not begun");
		return;
	}
	recorder->open = false;
	if (recorder->awaits_user)
		tlm_recorder_enter_user(recorder);
	columns = collect(recorder, now);
	tlm_hierarchy_label(recorder->hierarchy, -1);
	recorder->ledger.who = NOBODY;
	for (i = 0; i < columns; i++) {
		if (i)
			counts[n++] = ',';
		n += put(counts + n, now[i] - recorder->begun[i]);
	}
	fprintf(recorder->output,
		"{\"region\": %" PRIu64 ", \"number\": %" PRIu64 ", \"counts\": [", recorder->label,
		recorder->rows++);
	fwrite(counts, 1, n, recorder->output);
	fputs("]}\n", recorder->output);
	written(recorder);
}

void tlm_recorder_event(struct tlm_recorder *recorder, const char *text)
{
	fprintf(recorder->output, "{\"event\": \"%s\", \"region\": %" PRIu64 "}\n", text,
		recorder->label);
	written(recorder);
}

void tlm_recorder_stop(struct tlm_recorder *recorder)
{
	if (recorder->open)
		tlm_recorder_event(recorder, "a region had not ended");
	fprintf(recorder->output, "{\"end\": {\"rows\": %" PRIu64 "}}\n", recorder->rows);
	written(recorder);
}
