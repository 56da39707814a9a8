// SPDX-License-Identifier: GPL-2.0-only
/*
 * Makes the program's control group and loads the module trapless_stat, which begins and ends the
 * model's regions by who is a member. It owns the files of both.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "guest_stat.h"

#define FOLDER "/run/trapless-stat"
#define GROUP FOLDER "/program"
#define PARAMETERS "/sys/module/trapless_stat/parameters/"
#define NAME "trapless_stat"
#define PAUSE_NS 10000000
#define KILL_TRIES 1000

static void write_file(const char *path, const char *text)
{
	int file = open(path, O_WRONLY | O_CLOEXEC);

	if (file < 0 || write(file, text, strlen(text)) < 0)
		stat_fail("%s: %s", path, strerror(errno));
	close(file);
}

static void read_file(const char *path, char *text, size_t room)
{
	int file = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got = file >= 0 ? read(file, text, room - 1) : -1;

	if (got < 0)
		stat_fail("%s: %s", path, strerror(errno));
	text[got] = '\0';
	close(file);
}

static void load_module(const char *path, uint64_t id)
{
	int file = open(path, O_RDONLY | O_CLOEXEC);
	char parameters[64];

	snprintf(parameters, sizeof(parameters), "cgroup=%llu", (unsigned long long)id);
	if (file < 0 || syscall(SYS_finit_module, file, parameters, 0))
		stat_fail("%s cannot be loaded: %s (the guest's kernel log says more)", path,
			  strerror(errno));
	close(file);
}

void group_create(const char *module)
{
	struct stat status;

	mkdir("/run", 0755);
	if (mkdir(FOLDER, 0700) || mount("cgroup2", FOLDER, "cgroup2", 0, NULL))
		stat_fail("the guest's kernel gives no control group (cgroup2 on %s: %s); the "
			  "program could not be told from other processes", FOLDER,
			  strerror(errno));
	if (mkdir(GROUP, 0755) || stat(GROUP, &status))
		stat_fail("%s: %s", GROUP, strerror(errno));
	load_module(module, status.st_ino);
}

void group_remove(void)
{
	if (syscall(SYS_delete_module, NAME, O_NONBLOCK))
		stat_fail("the module cannot be unloaded: %s", strerror(errno));
	rmdir(GROUP);
	umount(FOLDER);
	rmdir(FOLDER);
}

void group_enter(void)
{
	write_file(GROUP "/cgroup.procs", "0");
}

int group_open_counting(void)
{
	int file = open(PARAMETERS "counting", O_WRONLY | O_CLOEXEC);

	if (file < 0)
		stat_fail("%s: %s", PARAMETERS "counting", strerror(errno));
	return file;
}

void group_count(int counting, int phase)
{
	char text[16];
	int length = snprintf(text, sizeof(text), "%d", phase);

	if (write(counting, text, (size_t)length) != length)
		stat_fail("%s: %s", PARAMETERS "counting", strerror(errno));
}

/* Returns whether the module accepted the value. */
static bool set_watching(const char *text)
{
	int file = open(PARAMETERS "watching", O_WRONLY | O_CLOEXEC);
	bool taken = file >= 0 && write(file, text, 1) == 1;

	close(file);
	return taken;
}

void group_watch(void)
{
	set_watching("1");
}

static uint64_t read_number(const char *path)
{
	char text[64];

	read_file(path, text, sizeof(text));
	return strtoull(text, NULL, 10);
}

struct watched group_watched(void)
{
	struct watched watched = { 0 };

	if (!set_watching("0"))
		return watched;
	watched.worked = read_number(PARAMETERS "worked");
	watched.numberless = read_number(PARAMETERS "numberless");
	return watched;
}

void group_trace(bool on)
{
	write_file(PARAMETERS "tracing", on ? "1" : "0");
}

bool group_is_populated(void)
{
	char text[256];

	read_file(GROUP "/cgroup.events", text, sizeof(text));
	return strstr(text, "populated 1");
}

void group_kill(void)
{
	const struct timespec pause = { .tv_nsec = PAUSE_NS };
	int tries;

	write_file(GROUP "/cgroup.kill", "1");
	for (tries = 0; tries < KILL_TRIES && group_is_populated(); tries++)
		nanosleep(&pause, NULL);
}

void group_switch(bool supervisor)
{
	FILE *members = fopen(GROUP "/cgroup.procs", "re");
	int process;

	if (!members)
		stat_fail("%s: %s", GROUP "/cgroup.procs", strerror(errno));
	while (fscanf(members, "%d", &process) == 1)
		supervisor_try(process, supervisor);
	fclose(members);
}

void group_record_counts(int phase)
{
#define ONE(event) +1
	const unsigned int events = STAT_EVENTS(ONE);
#undef ONE
	char text[512], *at = text, *end;
	unsigned int i;

	read_file(PARAMETERS "counts", text, sizeof(text));
	for (i = 0; i < events; i++, at = end) {
		uint64_t count = strtoull(at, &end, 10);

		if (end == at)
			stat_fail("%s: not understood: %s", PARAMETERS "counts", text);
		fact(((unsigned int)phase << STAT_PHASE_SHIFT) + i, count);
	}
}
