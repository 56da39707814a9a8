// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Opens a source of memory by its text. It owns the table of the kinds of sources; each kind has a
 * file of its own that reads it.
 */
#include "source.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct source_kind *const kinds[] = {
	&source_ram,
	&source_regions,
	&source_process,
	&source_leechcore,
	&source_rdma,
};

#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

int source_fail(char *error, int status, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(error, SOURCE_ERROR_BYTES, format, arguments);
	va_end(arguments);
	return status;
}

const char *source_form(size_t index)
{
	return index < KINDS && kinds[index] ? kinds[index]->form : NULL;
}

int source_open(struct source *source, const char *text, char *error)
{
	size_t length = strcspn(text, ":");
	size_t i;

	memset(source, 0, sizeof(*source));
	for (i = 0; source_form(i) && text[length]; i++) {
		if (strlen(kinds[i]->name) != length || strncmp(kinds[i]->name, text, length))
			continue;
		source->kind = kinds[i];
		return kinds[i]->open(source, text + length + 1, error);
	}
	length = (size_t)snprintf(error, SOURCE_ERROR_BYTES,
				  "'%.64s' is not a source of memory; there are", text);
	for (i = 0; source_form(i) && length < SOURCE_ERROR_BYTES; i++)
		length += (size_t)snprintf(error + length, SOURCE_ERROR_BYTES - length, "%s %s",
					   i ? "," : "", source_form(i));
	return -EINVAL;
}

void source_close(struct source *source)
{
	if (source->state)
		source->kind->close(source);
	source->state = NULL;
}

int source_number(const char *text, const char *key, uint64_t *value, char *error)
{
	size_t length = strlen(key);
	char *end;

	if (!strncmp(text, key, length) && text[length] == '=' && text[length + 1] >= '0' &&
	    text[length + 1] <= '9') {
		errno = 0;
		*value = strtoull(text + length + 1, &end, 0);
		if (!errno && !*end)
			return 0;
	}
	return source_fail(error, -EINVAL, "'%s' is not of the form %s=NUMBER", text, key);
}
