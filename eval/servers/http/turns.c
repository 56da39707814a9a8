// SPDX-License-Identifier: GPL-2.0-only
/*
 * Puts the same loads on several servers by turns, in one boot, and counts what each server's
 * process executes meanwhile. It owns the turns; the load itself is a command of the shell, which
 * finds the server's port in $PORT and fails if a reply is wrong.
 *
 * Under -icount the time that the scheduler gives to a process is its number of instructions, in
 * user mode and in the kernel; all threads of the process are in it. The kernel's own threads are
 * counted beside it: to them a server may leave work. Crossings are counted in turns of their own,
 * so that the probe's exceptions are in no count of instructions.
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../tools/crossings/probe.h"
#include "measure.h"

#define SERVERS_MAX 8u
#define READY_TRIES 100u
#define PAUSE_NS 20000000	/* until a server has done what a load left it to do */

struct server {
	const char *name, *path;
	char port[8];
	pid_t pid;
};

static struct server servers[SERVERS_MAX];
static unsigned int count;

static void rest(void)
{
	const struct timespec pause = { .tv_nsec = PAUSE_NS };

	nanosleep(&pause, NULL);
}

static uint64_t used(const struct server *server)
{
	struct timespec time;
	clockid_t clock;

	if (clock_getcpuclockid(server->pid, &clock) || clock_gettime(clock, &time))
		measure_fail("%s has ended", server->name);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* What a thread has used, if it is one of the kernel's: a child of kthreadd, which is number 2. */
static uint64_t used_by_kernel_thread(const char *number)
{
	char path[300];
	uint64_t ns = 0;
	int parent = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%s/stat", number);
	file = fopen(path, "re");
	if (!file)
		return 0; /* it has ended */
	if (fscanf(file, "%*d (%*[^)]) %*c %d", &parent) != 1)
		parent = 0;
	fclose(file);
	if (parent != 2)
		return 0;
	snprintf(path, sizeof(path), "/proc/%s/schedstat", number);
	file = fopen(path, "re");
	if (!file)
		return 0;
	if (fscanf(file, "%" SCNu64, &ns) != 1)
		ns = 0;
	fclose(file);
	return ns;
}

static uint64_t used_by_kernel_threads(void)
{
	DIR *folder = opendir("/proc");
	struct dirent *entry;
	uint64_t sum = 0;

	if (!folder)
		measure_fail("/proc: %s", strerror(errno));
	while ((entry = readdir(folder)))
		if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
			sum += used_by_kernel_thread(entry->d_name);
	closedir(folder);
	return sum;
}

static void run(const struct server *server, const char *load)
{
	int status;

	setenv("PORT", server->port, 1);
	status = system(load);
	if (status)
		measure_fail("%s: `%s` ended with wait status %#x", server->name, load,
			     (unsigned int)status);
	rest();
}

static void start(struct server *server, unsigned int place, const char *folder, const char *ready)
{
	unsigned int tries = 0;

	snprintf(server->port, sizeof(server->port), "%u", 8080 + place);
	fflush(stdout);
	server->pid = fork();
	if (server->pid < 0)
		measure_fail("cannot fork: %s", strerror(errno));
	if (!server->pid) {
		execl(server->path, server->path, server->port, folder, NULL);
		_exit(127);
	}
	setenv("PORT", server->port, 1);
	do {
		if (tries++ == READY_TRIES || waitpid(server->pid, NULL, WNOHANG))
			measure_fail("%s is not ready", server->path);
		rest();
	} while (system(ready));
}

static void stop(const struct server *server)
{
	int status;

	kill(server->pid, SIGTERM);
	if (waitpid(server->pid, &status, 0) != server->pid || status)
		measure_fail("%s ended with wait status %#x", server->name, (unsigned int)status);
}

static void row(const struct server *server, const char *load, const char *unit, uint64_t value,
		unsigned int turn)
{
	printf("{\"kind\": \"counted\", \"server\": \"%s\", \"load\": \"%s\", \"unit\": \"%s\", "
	       "\"value\": %" PRIu64 ", \"turn\": %u}\n", server->name, load, unit, value, turn);
}

static void count_instructions(const struct server *server, const char *name, const char *load,
			       unsigned int turn)
{
	uint64_t threads = used_by_kernel_threads(), before = used(server);

	run(server, load);
	row(server, name, "instructions", used(server) - before, turn);
	row(server, name, "kernel-threads", used_by_kernel_threads() - threads, turn);
}

static void count_crossings(const struct server *server, const char *name, const char *load)
{
	int probe = probe_attach(server->pid);

	run(server, load);
	row(server, name, "crossings", probe_read(probe), 0);
}

/* One load: once uncounted, then by turns in an order that changes. */
static void take_turns(const char *name, const char *load, unsigned int turns)
{
	unsigned int order[SERVERS_MAX];

	for (unsigned int i = 0; i < count; i++)
		run(&servers[i], load);
	for (unsigned int turn = 0; turn < turns; turn++) {
		for (unsigned int i = 0; i < count; i++)
			order[i] = i;
		measure_shuffle(order, count);
		for (unsigned int i = 0; i < count; i++)
			count_instructions(&servers[order[i]], name, load, turn);
	}
	for (unsigned int i = 0; i < count; i++)
		count_crossings(&servers[i], name, load);
}

int main(int argc, char **argv)
{
	unsigned int turns;
	int at;

	if (argc < 5)
		measure_fail("usage: turns TURNS FOLDER READY NAME=SERVER... -- [NAME LOAD]...");
	measure_calibrate(MEASURE_COUNTED);
	turns = (unsigned int)measure_parse_number("TURNS", argv[1], 1000);
	for (at = 4; at < argc && strcmp(argv[at], "--"); at++) {
		struct server *server = &servers[count];
		char *path = strchr(argv[at], '=');

		if (!path || count == SERVERS_MAX)
			measure_fail("%s: not NAME=SERVER, or one too many", argv[at]);
		*path = '\0';
		server->name = argv[at];
		server->path = path + 1;
		start(server, count++, argv[2], argv[3]);
	}
	for (at++; at + 1 < argc; at += 2) {
		take_turns(argv[at], argv[at + 1], turns);
		measure_progress((unsigned int)at, (unsigned int)argc);
	}
	while (count)
		stop(&servers[--count]);
	printf("{\"complete\": true}\n");
	return 0;
}
