// SPDX-License-Identifier: GPL-2.0-only
/*
 * Replays a trace through the model: `trapless-model-replay CONFIG < TRACE > ROWS`. Each line of
 * the trace is an access (r, w or f, or R, W or F by the kernel, with a virtual and a physical
 * address in hexadecimal), or one of: cr3, flush, cold, begin LABEL, end. It writes the rows that
 * the plugin would write.
 */
#include "config.h"
#include "recorder.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static struct tlm_config config;
static struct tlm_recorder recorder;
static bool begun;

static int replay_access(char kind, uint64_t virtual, uint64_t physical)
{
	static const char kinds[] = "rwfRWF";
	const char *at = strchr(kinds, kind);
	struct tlm_mode_counts *counts;
	uint64_t access;

	if (!kind || !at)
		return -EINVAL;
	access = 1 << (at - kinds) % 3 | (at - kinds > 2 ? TLM_KERNEL : 0);
	counts = &recorder.modes[at - kinds > 2];
	counts->reads += (access & TLM_READ) != 0;
	counts->writes += (access & TLM_WRITE) != 0;
	counts->fetches += (access & TLM_FETCH) != 0;
	if (!begun)
		tlm_ledger_start(&recorder.ledger, access & TLM_KERNEL);
	begun = true;
	tlm_ledger_block(&recorder.ledger, access & TLM_KERNEL);
	tlm_hierarchy_access(config.hierarchy, virtual, physical,
			     access | tlm_config_page(&config, virtual));
	return 0;
}

static int replay_line(const char *line)
{
	uint64_t virtual, physical;
	char kind;

	if (strcmp(line, "cr3") == 0)
		tlm_hierarchy_cr3(config.hierarchy);
	else if (strcmp(line, "flush") == 0)
		tlm_hierarchy_flush(config.hierarchy);
	else if (strcmp(line, "cold") == 0)
		tlm_hierarchy_cold(config.hierarchy);
	else if (sscanf(line, "begin %" SCNu64, &recorder.label) == 1)
		tlm_recorder_begin(&recorder);
	else if (strcmp(line, "end") == 0)
		tlm_recorder_end(&recorder);
	else if (sscanf(line, "%c %" SCNx64 " %" SCNx64, &kind, &virtual, &physical) == 3)
		return replay_access(kind, virtual, physical);
	else
		return -EINVAL;
	return 0;
}

int main(int argc, char **argv)
{
	char line[128], error[TLM_ERROR_MAX];
	FILE *file;

	if (argc != 2) {
		fprintf(stderr, "usage: trapless-model-replay CONFIG < TRACE\n");
		return 2;
	}
	file = fopen(argv[1], "re");
	if (!file) {
		fprintf(stderr, "%s: %s\n", argv[1], strerror(errno));
		return 2;
	}
	if (tlm_config_read(&config, file, error)) {
		fprintf(stderr, "%s: %s\n", argv[1], error);
		fclose(file);
		return 2;
	}
	fclose(file);
	recorder.hierarchy = config.hierarchy;
	recorder.output = stdout;
	tlm_recorder_start(&recorder, 0);
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = 0;
		if (replay_line(line)) {
			fprintf(stderr, "not a line of a trace: %s\n", line);
			tlm_config_destroy(&config);
			return 2;
		}
	}
	tlm_recorder_stop(&recorder);
	tlm_config_destroy(&config);
	return recorder.failed;
}
