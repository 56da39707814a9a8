// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Parses a plan. It owns the limits of what a plan may hold, and it refuses a text that is not
 * exactly of the form in plan.h, with the number of the line.
 */
#include "plan.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_MAX (4 + STEPS_MAX)
#define LINE_BYTES_MAX 512

struct line {
	struct plan *plan;
	char *error;
	unsigned int number;
	unsigned int words;
	char *word[WORDS_MAX];
	char text[LINE_BYTES_MAX];
};

static int fail(const struct line *line, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static int fail(const struct line *line, const char *format, ...)
{
	va_list arguments;
	int length = snprintf(line->error, PLAN_ERROR_BYTES, "line %u: ", line->number);

	va_start(arguments, format);
	vsnprintf(line->error + length, (size_t)(PLAN_ERROR_BYTES - length), format, arguments);
	va_end(arguments);
	return -EINVAL;
}

static int number(const struct line *line, unsigned int word, uint64_t low, uint64_t high,
		  uint64_t *value)
{
	const char *text = line->word[word];
	char *end;

	errno = 0;
	*value = strtoull(text, &end, 0);
	if (*text < '0' || *text > '9' || *end || errno)
		return fail(line, "'%.40s' is not a number", text);
	if (*value < low || *value > high)
		return fail(line, "%s is not between %llu and %llu", text,
			    (unsigned long long)low, (unsigned long long)high);
	return 0;
}

static int small_number(const struct line *line, uint64_t low, uint64_t high, int *value)
{
	uint64_t wide;
	int status = number(line, 1, low, high, &wide);

	if (!status)
		*value = (int)wide;
	return status;
}

static int take_name(const struct line *line, char *name)
{
	size_t length = strlen(line->word[1]);

	if (length >= NAME_BYTES_MAX)
		return fail(line, "a name of %zu characters; at most %d", length,
			    NAME_BYTES_MAX - 1);
	memcpy(name, line->word[1], length + 1);
	return 0;
}

static int take_interval(const struct line *line)
{
	return number(line, 1, INTERVAL_NS_MIN, INTERVAL_NS_MAX, &line->plan->interval_ns);
}

static int take_duration(const struct line *line)
{
	return number(line, 1, 0, UINT64_MAX / 2, &line->plan->duration_ns);
}

static int take_spin(const struct line *line)
{
	return number(line, 1, 0, SPIN_NS_MAX, &line->plan->spin_ns);
}

static int take_cpu(const struct line *line)
{
	return small_number(line, 0, 65535, &line->plan->cpu);
}

static int take_watch(const struct line *line)
{
	return small_number(line, 1, INT32_MAX, &line->plan->watch);
}

static int take_thread(const struct line *line)
{
	struct plan *plan = line->plan;

	if (plan->threads == THREADS_MAX)
		return fail(line, "more than %d threads", THREADS_MAX);
	return small_number(line, 1, INT32_MAX, &plan->thread[plan->threads++]);
}

static int take_base(const struct line *line)
{
	struct plan *plan = line->plan;
	struct base *base = &plan->base[plan->bases];
	int status;

	if (plan->bases == BASES_MAX)
		return fail(line, "more than %d bases", BASES_MAX);
	status = number(line, 1, 0, UINT64_MAX, &base->virtual);
	if (!status)
		status = number(line, 2, 1, UINT64_MAX, &base->length);
	if (!status)
		status = number(line, 3, 0, UINT64_MAX, &base->physical);
	plan->bases += !status;
	return status;
}

static int take_group(const struct line *line)
{
	static const char *const rules[] = {
		[RULE_ONCE] = "once",
		[RULE_STABLE] = "stable",
		[RULE_SEQLOCK] = "seqlock",
	};
	struct plan *plan = line->plan;
	struct group *group = &plan->group[plan->groups];
	unsigned int rule = 0;
	int status;

	if (plan->groups == GROUPS_MAX)
		return fail(line, "more than %d groups", GROUPS_MAX);
	while (rule <= RULE_SEQLOCK && strcmp(line->word[2], rules[rule]))
		rule++;
	if (rule > RULE_SEQLOCK)
		return fail(line, "'%.40s' is no rule: once, stable, seqlock", line->word[2]);
	if (line->words != (rule == RULE_SEQLOCK ? 5u : 3u))
		return fail(line, "a seqlock, and nothing else, has two addresses");
	group->rule = rule;
	group->first = group->end = plan->fields;
	group->at = plan->data_bytes;
	status = take_name(line, group->name);
	if (!status && rule == RULE_SEQLOCK)
		status = number(line, 3, 0, UINT64_MAX - 4, &group->seq1);
	if (!status && rule == RULE_SEQLOCK)
		status = number(line, 4, 0, UINT64_MAX - 4, &group->seq0);
	plan->groups += !status;
	return status;
}

static int take_field(const struct line *line)
{
	struct plan *plan = line->plan;
	struct field *field = &plan->field[plan->fields];
	struct group *group;
	uint64_t bytes;
	unsigned int i;
	int status;

	if (!plan->groups)
		return fail(line, "a field before any group");
	if (plan->fields == FIELDS_MAX)
		return fail(line, "more than %d fields", FIELDS_MAX);
	status = take_name(line, field->name);
	if (!status)
		status = number(line, 2, 1, FIELD_BYTES_MAX, &bytes);
	if (!status)
		status = number(line, 3, 0, UINT64_MAX - FIELD_BYTES_MAX, &field->address);
	for (i = 4; !status && i < line->words; i++)
		status = number(line, i, 0, UINT64_MAX, &field->step[field->steps++]);
	if (status)
		return status;
	if (plan->data_bytes + bytes > ROW_BYTES_MAX)
		return fail(line, "a row has more than %u bytes", ROW_BYTES_MAX);
	group = &plan->group[plan->groups - 1];
	field->bytes = (uint32_t)bytes;
	field->at = plan->data_bytes;
	plan->data_bytes += field->bytes;
	plan->fields++;
	group->end++;
	group->bytes += field->bytes;
	return 0;
}

/* The first word of a line, the number of words that it may have, and its parser. */
static const struct {
	const char *word;
	unsigned int least, most;
	int (*take)(const struct line *line);
} statements[] = {
	{ "interval-ns", 2, 2, take_interval },
	{ "duration-ns", 2, 2, take_duration },
	{ "spin-ns", 2, 2, take_spin },
	{ "cpu", 2, 2, take_cpu },
	{ "watch", 2, 2, take_watch },
	{ "thread", 2, 2, take_thread },
	{ "base", 4, 4, take_base },
	{ "group", 3, 5, take_group },
	{ "field", 4, 4 + STEPS_MAX, take_field },
};

static int split(struct line *line, const char *text, size_t length)
{
	char *save = NULL, *word;

	if (length >= sizeof(line->text))
		return fail(line, "more than %d characters", LINE_BYTES_MAX - 1);
	if (memchr(text, 0, length))
		return fail(line, "a zero byte");
	memcpy(line->text, text, length);
	line->text[length] = 0;
	line->words = 0;
	for (word = strtok_r(line->text, " \t\r", &save); word && *word != '#';
	     word = strtok_r(NULL, " \t\r", &save)) {
		if (line->words == WORDS_MAX)
			return fail(line, "more than %d words", WORDS_MAX);
		line->word[line->words++] = word;
	}
	return 0;
}

static int take_line(const struct line *line)
{
	size_t i;

	for (i = 0; i < sizeof(statements) / sizeof(statements[0]); i++) {
		if (strcmp(line->word[0], statements[i].word))
			continue;
		if (line->words < statements[i].least || line->words > statements[i].most)
			return fail(line, "%s with %u words", line->word[0], line->words);
		return statements[i].take(line);
	}
	return fail(line, "'%.40s' is not known", line->word[0]);
}

static int finish(const struct line *line)
{
	const struct plan *plan = line->plan;
	uint32_t i;

	if (!plan->interval_ns)
		return fail(line, "the plan ends without interval-ns");
	if (!plan->fields)
		return fail(line, "the plan ends without a field");
	for (i = 0; i < plan->groups; i++)
		if (plan->group[i].first == plan->group[i].end)
			return fail(line, "the plan ends, and group %s is empty",
				    plan->group[i].name);
	if (plan->spin_ns > plan->interval_ns)
		return fail(line, "the plan ends: spin-ns is longer than interval-ns");
	return 0;
}

int plan_parse(struct plan *plan, const char *text, size_t length, char *error)
{
	struct line line = { .plan = plan, .error = error };
	bool begun = false;

	memset(plan, 0, sizeof(*plan));
	plan->cpu = -1;
	while (length) {
		const char *end = memchr(text, '\n', length);
		size_t bytes = end ? (size_t)(end - text) : length;
		int status;

		line.number++;
		status = split(&line, text, bytes);
		if (!status && line.words) {
			if (begun)
				status = take_line(&line);
			else if (line.words != 2 || strcmp(line.word[0], "trapless-plan") ||
				 strcmp(line.word[1], "1"))
				status = fail(&line, "a plan begins with: trapless-plan 1");
			begun = true;
		}
		if (status)
			return status;
		text += bytes + (end != NULL);
		length -= bytes + (end != NULL);
	}
	line.number++;
	return begun ? finish(&line) : fail(&line, "the plan is empty");
}
