// SPDX-License-Identifier: GPL-2.0-only
/*
 * Reads the configuration, one line at a time, and owns its syntax:
 *
 *   memory BYTES
 *   pages FIRST LAST SIZE            (hexadecimal, inclusive; 4096, 2097152 or 1073741824)
 *   cache NAME size= ways= line= policy= from= [write=] [streams= ahead=] [colour=] [seed=]
 *         [modes=]
 *   tlb NAME entries= ways= pages= policy= from= [flush=] [seed=] [modes=]
 *   footprint NAME unit= from= [empty=] [label=]
 *
 * Empty lines and lines that begin with # are skipped.
 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct choice {
	const char *name;
	int value;
};

static const struct choice policies[] = {
	{ "lru", TLM_LRU }, { "plru", TLM_PLRU }, { "random", TLM_RANDOM }, { NULL, 0 }
};
static const struct choice flushes[] = {
	{ "nonglobal", TLM_FLUSH_NONGLOBAL },
	{ "all", TLM_FLUSH_ALL },
	{ "none", TLM_FLUSH_NONE },
	{ NULL, 0 }
};
enum { SHARED, APART, COHERENT };
static const struct choice modes[] = {
	{ "shared", SHARED }, { "apart", APART }, { "coherent", COHERENT }, { NULL, 0 }
};
static const struct choice empties[] = { { "never", 0 }, { "crossing", 1 }, { NULL, 0 } };
static const struct choice writes[] = { { "back", 0 }, { "through", 1 }, { NULL, 0 } };
static const struct choice pages[] = {
	{ "4096", TLM_HOLDS_4K },
	{ "2097152", TLM_HOLDS_2M },
	{ "1073741824", TLM_HOLDS_1G },
	{ NULL, 0 }
};

static int complain(char *error, const char *what, const char *value, const char *hint)
{
	snprintf(error, TLM_ERROR_MAX, "%s=%.80s: %s", what, value, hint);
	return -EINVAL;
}

static int choose(const struct choice *choices, const char *key, const char *value, int *result,
		  char *error)
{
	const struct choice *choice;

	for (choice = choices; choice->name; choice++) {
		if (strcmp(choice->name, value) == 0) {
			*result = choice->value;
			return 0;
		}
	}
	return complain(error, key, value, "no such choice");
}

static int number(const char *key, const char *value, uint64_t max, uint64_t *result, char *error)
{
	char *end;

	errno = 0;
	*result = strtoull(value, &end, 10);
	if (value[0] < '0' || value[0] > '9' || *end || errno)
		return complain(error, key, value, "not a whole number");
	if (*result > max)
		return complain(error, key, value, "too large");
	return 0;
}

static int page_sizes(const char *value, unsigned int *result, char *error)
{
	char words[64], *word, *rest = words;

	snprintf(words, sizeof(words), "%s", value);
	while ((word = strsep(&rest, ","))) {
		int bit;

		if (choose(pages, "pages", word, &bit, error))
			return -EINVAL;
		*result |= bit;
	}
	return 0;
}

/* A key that takes one of a few words; -ENOENT if this kind of structure has none of the name. */
static int set_choice(struct tlm_geometry *geometry, const char *key, const char *value,
		      char *error)
{
	enum { POLICY, MODES, FLUSH, WRITE, EMPTY, KEYS };
	const struct {
		const char *key;
		bool here;
		const struct choice *choices;
	} keys[KEYS] = {
		[POLICY] = { "policy", geometry->kind != TLM_FOOTPRINT, policies },
		[MODES] = { "modes", geometry->kind != TLM_FOOTPRINT, modes },
		[FLUSH] = { "flush", geometry->kind == TLM_TLB, flushes },
		[WRITE] = { "write", geometry->kind == TLM_CACHE, writes },
		[EMPTY] = { "empty", geometry->kind == TLM_FOOTPRINT, empties },
	};
	int at = 0, choice = 0;

	while (at < KEYS && strcmp(keys[at].key, key) != 0)
		at++;
	if (at == KEYS || !keys[at].here)
		return -ENOENT;
	if (choose(keys[at].choices, key, value, &choice, error))
		return -EINVAL;
	switch (at) {
	case POLICY:
		geometry->policy = choice;
		break;
	case MODES:
		geometry->apart = choice != SHARED;
		geometry->coherent = choice == COHERENT;
		break;
	case FLUSH:
		geometry->flush = choice;
		break;
	case WRITE:
		geometry->through = choice;
		break;
	case EMPTY:
		geometry->crossing = choice;
		break;
	}
	return 0;
}

/* A footprint's keys that take a number. */
static int set_footprint(struct tlm_geometry *geometry, const char *key, const char *value,
			 char *error)
{
	bool unit = strcmp(key, "unit") == 0;
	uint64_t count;

	if (!unit && strcmp(key, "label") != 0)
		return complain(error, key, value, "unknown word");
	if (number(key, value, unit ? UINT32_MAX : TLM_LABELS - 1, &count, error))
		return -EINVAL;
	if (unit) {
		geometry->line = count;
	} else {
		geometry->labelled = true;
		geometry->label = count;
	}
	return 0;
}

/* One KEY=VALUE of a structure. */
static int set(struct tlm_geometry *geometry, const char *key, const char *value, char *error)
{
	bool cache = geometry->kind == TLM_CACHE;
	uint64_t count;
	int result;

	result = set_choice(geometry, key, value, error);
	if (result != -ENOENT)
		return result;
	if (geometry->kind == TLM_FOOTPRINT)
		return set_footprint(geometry, key, value, error);
	if (strcmp(key, "pages") == 0 && !cache)
		return page_sizes(value, &geometry->pages, error);
	if (number(key, value, strcmp(key, "seed") && strcmp(key, "colour") &&
		   strcmp(key, "size") ? UINT32_MAX : UINT64_MAX, &count, error))
		return -EINVAL;
	if (strcmp(key, "ways") == 0)
		geometry->ways = count;
	else if (strcmp(key, cache ? "size" : "entries") == 0)
		geometry->size = count;
	else if (strcmp(key, "seed") == 0)
		geometry->seed = count;
	else if (strcmp(key, "line") == 0 && cache)
		geometry->line = count;
	else if (strcmp(key, "streams") == 0 && cache)
		geometry->streams = count;
	else if (strcmp(key, "ahead") == 0 && cache)
		geometry->ahead = count;
	else if (strcmp(key, "colour") == 0 && cache)
		geometry->colour = count;
	else
		return complain(error, key, value, "unknown word");
	return 0;
}

static int read_structure(struct tlm_config *config, enum tlm_kind kind, char *words, char *error)
{
	struct tlm_geometry geometry = { .kind = kind };
	const char *from = "";
	char *word, *value, *name = strsep(&words, " ");

	if (!name || strlen(name) >= TLM_NAME_MAX || !*name)
		return complain(error, "name", name ? name : "", "missing, or too long");
	strcpy(geometry.name, name);
	while ((word = strsep(&words, " "))) {
		if (!*word)
			continue;
		value = strchr(word, '=');
		if (!value)
			return complain(error, name, word, "not of the form KEY=VALUE");
		*value++ = 0;
		if (strcmp(word, "from") == 0)
			from = value;
		else if (set(&geometry, word, value, error))
			return -EINVAL;
	}
	return tlm_hierarchy_add(config->hierarchy, &geometry, from, error);
}

static int read_range(struct tlm_config *config, const char *words, char *error)
{
	struct tlm_range *range = &config->ranges[config->range_count];
	char size[32];
	int bit;

	if (config->range_count == TLM_RANGES_MAX)
		return complain(error, "pages", words, "too many ranges");
	if (sscanf(words, "%" SCNx64 " %" SCNx64 " %31s", &range->first, &range->last, size) != 3 ||
	    range->first > range->last)
		return complain(error, "pages", words, "not of the form FIRST LAST SIZE");
	if (choose(pages, "page size", size, &bit, error))
		return -EINVAL;
	range->page = bit == TLM_HOLDS_4K ? 0 : bit == TLM_HOLDS_2M ? TLM_PAGE_2M : TLM_PAGE_1G;
	config->range_count++;
	return 0;
}

static int read_line(struct tlm_config *config, char *line, char *error)
{
	char *words = line, *word = strsep(&words, " ");

	if (!words)
		return complain(error, "line", line, "nothing behind the first word");
	if (strcmp(word, "memory") == 0)
		return number(word, words, UINT64_MAX, &config->hierarchy->memory, error);
	if (strcmp(word, "pages") == 0)
		return read_range(config, words, error);
	if (strcmp(word, "cache") == 0)
		return read_structure(config, TLM_CACHE, words, error);
	if (strcmp(word, "tlb") == 0)
		return read_structure(config, TLM_TLB, words, error);
	if (strcmp(word, "footprint") == 0)
		return read_structure(config, TLM_FOOTPRINT, words, error);
	return complain(error, "line", word, "neither memory, pages, cache, tlb nor footprint");
}

int tlm_config_read(struct tlm_config *config, FILE *file, char error[TLM_ERROR_MAX])
{
	char *line = NULL, reason[TLM_ERROR_MAX];
	unsigned int at = 0;
	size_t room = 0;
	int result = 0;

	memset(config, 0, sizeof(*config));
	config->hierarchy = tlm_hierarchy_create();
	if (!config->hierarchy) {
		snprintf(error, TLM_ERROR_MAX, "no memory");
		return -ENOMEM;
	}
	while (result == 0 && getline(&line, &room, file) >= 0) {
		at++;
		line[strcspn(line, "\n")] = 0;
		if (*line && *line != '#')
			result = read_line(config, line, reason);
	}
	if (result == 0 && (ferror(file) || config->hierarchy->count == 0)) {
		snprintf(reason, sizeof(reason), ferror(file) ? "cannot be read" : "no structures");
		result = -EINVAL;
	}
	free(line);
	if (result) {
		snprintf(error, TLM_ERROR_MAX, "line %u: %.*s", at, TLM_ERROR_MAX - 24, reason);
		tlm_config_destroy(config);
	}
	return result;
}

void tlm_config_destroy(struct tlm_config *config)
{
	tlm_hierarchy_destroy(config->hierarchy);
	memset(config, 0, sizeof(*config));
}

uint64_t tlm_config_page(const struct tlm_config *config, uint64_t address)
{
	unsigned int i;

	for (i = 0; i < config->range_count; i++)
		if (address >= config->ranges[i].first && address <= config->ranges[i].last)
			return config->ranges[i].page;
	return 0;
}
