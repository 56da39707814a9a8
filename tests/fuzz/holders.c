// SPDX-License-Identifier: GPL-2.0-only
/*
 * Prints who may hold the module or a process, for a finding: each thread that is left with its
 * state and its kernel stack, who has /dev/trapless open or mapped, and what is switched to
 * supervisor mode. It owns these lines, which begin with "held", and judges nothing.
 */
#include <ctype.h>
#include <dirent.h>
#include <linux/trapless.h>
#include <sys/ioctl.h>

#include "check.h"
#include "holders.h"

#define TEXT_BYTES 8192
#define SWITCHED_MAX 16

/* Each line of a text, behind some words that say whose it is. */
static void print_lines(const char *words, char *text)
{
	char *rest, *line;

	for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
		printf("held %s %s\n", words, line);
}

static void print_file(const char *words, const char *path)
{
	char text[TEXT_BYTES];

	if (read_file(path, text, sizeof(text)) > 0)
		print_lines(words, text);
}

/* What of /proc/PID is open or mapped. */
static void print_open(const char *pid)
{
	char path[300], target[256], text[TEXT_BYTES], *line, *rest;
	struct dirent *entry;
	DIR *folder;

	snprintf(path, sizeof(path), "/proc/%s/fd", pid);
	folder = opendir(path);
	while (folder && (entry = readdir(folder))) {
		ssize_t length;

		snprintf(path, sizeof(path), "/proc/%s/fd/%.20s", pid, entry->d_name);
		length = readlink(path, target, sizeof(target) - 1);
		target[length > 0 ? length : 0] = '\0';
		if (!strcmp(target, TL_DEVICE))
			printf("held %s has %s open as %s\n", pid, TL_DEVICE, entry->d_name);
	}
	if (folder)
		closedir(folder);
	snprintf(path, sizeof(path), "/proc/%s/maps", pid);
	if (read_file(path, text, sizeof(text)) <= 0)
		return;
	for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
		if (strstr(line, TL_DEVICE))
			printf("held %s maps %s\n", pid, line);
}

/* A thread of the kernel has no command line; only those that wait in the module matter. */
static void print_thread(const char *pid, const char *tid, bool of_kernel)
{
	char path[300], words[600], text[TEXT_BYTES], *state;

	snprintf(path, sizeof(path), "/proc/%s/task/%s/stack", pid, tid);
	if (of_kernel && (read_file(path, text, sizeof(text)) <= 0 || !strstr(text, "trapless")))
		return;
	snprintf(path, sizeof(path), "/proc/%s/task/%s/stat", pid, tid);
	if (read_file(path, text, sizeof(text)) <= 0)
		return;
	state = strrchr(text, ')');
	snprintf(words, sizeof(words), "%s/%s %.*s", pid, tid,
		 state ? (int)(state + 3 - strchr(text, '(')) : 0, strchr(text, '('));
	printf("held %s\n", words);
	snprintf(path, sizeof(path), "/proc/%s/task/%s/stack", pid, tid);
	print_file(words, path);
}

static void print_process(const char *pid)
{
	char path[300], text[64];
	struct dirent *entry;
	bool of_kernel;
	DIR *folder;

	snprintf(path, sizeof(path), "/proc/%s/maps", pid);
	of_kernel = read_file(path, text, sizeof(text)) <= 0;
	print_open(pid);
	snprintf(path, sizeof(path), "/proc/%s/task", pid);
	folder = opendir(path);
	while (folder && (entry = readdir(folder)))
		if (isdigit((unsigned char)entry->d_name[0]))
			print_thread(pid, entry->d_name, of_kernel);
	if (folder)
		closedir(folder);
}

static void print_switched(void)
{
	struct tl_process entries[SWITCHED_MAX] = { 0 };
	struct tl_processes list = {
		.size = sizeof(list), .entry_size = sizeof(entries[0]), .count = SWITCHED_MAX,
		.entries = (uint64_t)entries,
	};
	int fd = open(TL_DEVICE, O_RDWR | O_CLOEXEC);

	if (fd < 0 || ioctl(fd, TL_IOC_PROCESSES, &list))
		list.count = 0;
	for (uint32_t i = 0; i < list.count; i++)
		printf("held switched: %d %.16s%s mode %u, %u threads, %u in supervisor mode\n",
		       entries[i].pid, entries[i].comm,
		       entries[i].pid == getpid() ? " (the watcher itself)" : "", entries[i].mode,
		       entries[i].threads, entries[i].supervisor);
	close(fd);
}

void holders_print(void)
{
	struct dirent *entry;
	DIR *folder = opendir("/proc");

	print_file("references:", "/sys/module/trapless/refcnt");
	print_switched();
	while (folder && (entry = readdir(folder)))
		if (isdigit((unsigned char)entry->d_name[0]) && atoi(entry->d_name) != getpid())
			print_process(entry->d_name);
	if (folder)
		closedir(folder);
	fflush(stdout);
}
