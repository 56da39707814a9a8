// SPDX-License-Identifier: GPL-2.0-only
/*
 * Reads the launcher's configuration of the guest.
 *
 * This file owns the memory of the configuration. It is never freed, because init needs it until
 * the machine stops.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "guest_config.h"

static int read_all(const char *path, char **text, size_t *size)
{
	struct stat status;
	ssize_t got;
	int fd, err = 0;

	*text = NULL;
	*size = 0;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &status) < 0) {
		err = -errno;
		goto out;
	}
	*text = malloc((size_t)status.st_size + 1);
	if (!*text) {
		err = -ENOMEM;
		goto out;
	}
	while ((got = read(fd, *text + *size, (size_t)status.st_size - *size)) > 0)
		*size += (size_t)got;
	(*text)[*size] = '\0';
	if (got < 0)
		err = -errno;
out:
	close(fd);
	return err;
}

/* Every list gets room for as many entries as there are records: at most a few hundred. */
static int allocate_lists(struct guest_config *config, size_t records)
{
	config->modules = calloc(records + 1, sizeof(char *));
	config->argv = calloc(records + 1, sizeof(char *));
	config->env = calloc(records + 1, sizeof(char *));
	if (!config->modules || !config->argv || !config->env)
		return -ENOMEM;
	return 0;
}

static void append(char **list, char *value)
{
	while (*list)
		list++;
	*list = value;
}

static int take_flags(struct guest_config *config, const char *value)
{
	char *end;
	unsigned long flags = strtoul(value, &end, 10);

	if (end == value || *end || flags > UINT_MAX)
		return -EINVAL;
	config->supervisor = true;
	config->flags = (unsigned int)flags;
	return 0;
}

static int take(struct guest_config *config, char *record)
{
	char *value = strchr(record, '=');

	if (!value)
		return -EINVAL;
	*value++ = '\0';
	if (!strcmp(record, "exec"))
		config->exec = value;
	else if (!strcmp(record, "cwd"))
		config->cwd = value;
	else if (!strcmp(record, "root"))
		config->host_root = !strcmp(value, "host");
	else if (!strcmp(record, "launcher"))
		config->alone = !strcmp(value, "none");
	else if (!strcmp(record, "supervisor"))
		return take_flags(config, value);
	else if (!strcmp(record, "module"))
		append(config->modules, value);
	else if (!strcmp(record, "arg"))
		append(config->argv, value);
	else if (!strcmp(record, "env"))
		append(config->env, value);
	else
		return -EINVAL;
	return 0;
}

int guest_config_read(struct guest_config *config, const char *path, const char **bad)
{
	size_t size, records = 0;
	char *text, *record;
	int err;

	memset(config, 0, sizeof(*config));
	err = read_all(path, &text, &size);
	if (err)
		return err;
	for (size_t i = 0; i < size; i++)
		records += text[i] == '\0';
	err = allocate_lists(config, records);
	for (record = text; !err && record < text + size;) {
		char *next = record + strlen(record) + 1;

		*bad = record;
		err = take(config, record);
		record = next;
	}
	if (!err && !config->argv[0])
		err = -EINVAL;
	return err;
}
