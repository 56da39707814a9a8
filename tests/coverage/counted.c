// SPDX-License-Identifier: GPL-2.0-only
/*
 * Runs a command in a guest whose trapless.ko counts what is reached, and prints the counters once
 * the command has ended: `counted PARAMETERS COMMAND [ARGUMENT]...` loads the module with
 * PARAMETERS. On standard error it adds a line "counter INDEX VALUE" for each counter that is not
 * 0, and "file NAME HEX" for each file that counted programs left in /gcov. The exit status is the
 * command's.
 */
#include <dirent.h>

#include "counted.h"

#define FOLDER "/gcov"

static uint64_t counters[COUNTED_MAX];

static void print_file(const char *name)
{
	char path[512];
	FILE *file;
	int byte;

	snprintf(path, sizeof(path), FOLDER "/%s", name);
	file = fopen(path, "r");
	if (!file)
		return;
	fprintf(stderr, "file %s ", name);
	while ((byte = getc(file)) != EOF)
		fprintf(stderr, "%02x", (unsigned int)byte);
	fputc('\n', stderr);
	fclose(file);
}

static void print_files(void)
{
	DIR *folder = opendir(FOLDER);
	struct dirent *entry;

	while (folder && (entry = readdir(folder)))
		if (entry->d_name[0] != '.')
			print_file(entry->d_name);
}

int main(int argc, char **argv)
{
	size_t count;
	pid_t pid;
	int fd, status;

	if (argc < 3) {
		fputs("usage: counted PARAMETERS COMMAND [ARGUMENT]...\n", stderr);
		return 2;
	}
	fd = counted_open();
	counted_load(COUNTED_MODULE, argv[1], TL_DEVICE);
	pid = MUST(fork());
	if (pid == 0) {
		execv(argv[2], argv + 2);
		FAIL("%s: %s", argv[2], strerror(errno));
	}
	status = child_wait(pid);
	count = counted_read(fd, counters);
	fputc('\n', stderr);
	for (size_t i = 0; i < count; i++)
		if (counters[i])
			fprintf(stderr, "counter %zu %llu\n", i, (unsigned long long)counters[i]);
	print_files();
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
