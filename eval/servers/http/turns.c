// SPDX-License-Identifier: GPL-2.0-only
/*
 * Puts the same loads on several servers by turns, in one boot, and counts or times what each
 * server's process executes meanwhile. It owns the turns; the load itself is a command of the
 * shell, which finds the server's port in $PORT and fails if a reply is wrong.
 *
 * Under -icount the time that the scheduler gives to a process is its number of instructions, in
 * user mode and in the kernel; all threads of the process are in it. The kernel's own threads are
 * counted separately, because a server may leave work to them. Crossings are counted in turns of
 * their own, so that the probe's exceptions are in no count of instructions.
 *
 * On a real processor that time is in nanoseconds, and the duration of the load is given, too.
 * There the servers have CPU 0 to themselves, the load is on CPU 1, and a server may be in
 * supervisor mode.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../tools/crossings/dispatch_probe.h"
#include "measure.h"
#include "mode.h"

#define SERVERS_MAX 8u
#define FIRST_PORT 8080u
#define SERVERS_CPU 0
#define LOAD_CPU 1
#define INSIDE "supervisor:"	/* before the path of a server that is in supervisor mode */
#define READY_TRIES 100u
#define PAUSE_NS 20000000	/* until a server has done what a load left it to do */

struct server {
	const char *name, *path;
	char port[8];
	pid_t pid;
	bool inside;
};

static struct server servers[SERVERS_MAX];
static unsigned int count;
static enum measure_kind kind;
static int module = -1;

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

/* The time of a thread, if it is one of the kernel's: a child of kthreadd, which is number 2. */
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

static void put(const struct server *server, const char *load)
{
	int status;

	setenv("PORT", server->port, 1);
	status = system(load);
	if (status)
		measure_fail("%s: `%s` ended with wait status %#x", server->name, load,
			     (unsigned int)status);
}

static void run(const struct server *server, const char *load)
{
	put(server, load);
	rest();
}

/* A port that nobody uses at this moment. */
static unsigned int free_port(void)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	socklen_t length = sizeof(address);
	int file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (file < 0 || bind(file, (struct sockaddr *)&address, length) ||
	    getsockname(file, (struct sockaddr *)&address, &length))
		measure_fail("no port: %s", strerror(errno));
	close(file);
	return ntohs(address.sin_port);
}

static void start(struct server *server, const char *folder, const char *ready)
{
	unsigned int tries = 0;

	/* Counts are to be the same in each boot, and the kernel hashes ports. */
	snprintf(server->port, sizeof(server->port), "%u",
		 kind == MEASURE_COUNTED ? FIRST_PORT + count : free_port());
	fflush(stdout);
	server->pid = fork();
	if (server->pid < 0)
		measure_fail("cannot fork: %s", strerror(errno));
	if (!server->pid) {
		if (kind == MEASURE_MEASURED)
			measure_pin(SERVERS_CPU);
		execl(server->path, server->path, server->port, folder, NULL);
		_exit(127);
	}
	setenv("PORT", server->port, 1);
	do {
		if (tries++ == READY_TRIES || waitpid(server->pid, NULL, WNOHANG))
			measure_fail("%s is not ready", server->path);
		rest();
	} while (system(ready));
	if (server->inside)
		mode_switch(module, server->pid, TL_MODE_SUPERVISOR, 0);
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
	printf("{\"kind\": \"%s\", \"server\": \"%s\", \"load\": \"%s\", \"unit\": \"%s\", "
	       "\"value\": %" PRIu64 ", \"turn\": %u}\n",
	       kind == MEASURE_COUNTED ? "counted" : "measured", server->name, load, unit, value,
	       turn);
}

static void count_instructions(const struct server *server, const char *name, const char *load,
			       unsigned int turn)
{
	uint64_t threads = used_by_kernel_threads(), before = used(server);

	run(server, load);
	row(server, name, "instructions", used(server) - before, turn);
	row(server, name, "kernel-threads", used_by_kernel_threads() - threads, turn);
}

static void take_time(const struct server *server, const char *name, const char *load,
		      unsigned int turn)
{
	uint64_t before = used(server), began = measure_counter(), clocks;

	put(server, load);
	clocks = measure_counter() - began;
	rest();
	row(server, name, "cpu-ns", used(server) - before, turn);
	row(server, name, "clocks", clocks, turn);
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
		for (unsigned int i = 0; i < count; i++) {
			if (kind == MEASURE_COUNTED)
				count_instructions(&servers[order[i]], name, load, turn);
			else
				take_time(&servers[order[i]], name, load, turn);
		}
	}
	for (unsigned int i = 0; i < count && kind == MEASURE_COUNTED; i++)
		count_crossings(&servers[i], name, load);
}

/* NAME=PATH or NAME=supervisor:PATH; the latter is left out where the mode is not offered. */
static void add(char *words, const char *folder, const char *ready)
{
	struct server *server = &servers[count];
	char *path = strchr(words, '=');
	const char *why;

	if (!path || count == SERVERS_MAX)
		measure_fail("%s: not NAME=SERVER, or one too many", words);
	*path++ = '\0';
	server->name = words;
	server->inside = !strncmp(path, INSIDE, strlen(INSIDE));
	server->path = path + (server->inside ? strlen(INSIDE) : 0);
	if (server->inside && module < 0)
		module = mode_open(&why);
	if (server->inside && module < 0) {
		printf("{\"skipped\": \"%s\", \"reason\": \"%s\"}\n", server->name, why);
		return;
	}
	start(server, folder, ready);
	count++;
}

/* How many of a server's calls were made in supervisor mode. */
static void report_calls(const struct server *server)
{
	struct tl_process counts;

	mode_counts(module, server->pid, &counts);
	printf("{\"server\": \"%s\", \"stayed\": %" PRIu64 ", \"left\": %" PRIu64 "}\n",
	       server->name, mode_calls_stayed(&counts), mode_calls_left(&counts));
}

int main(int argc, char **argv)
{
	unsigned int turns;
	int at;

	if (argc < 6)
		measure_fail("usage: turns KIND TURNS FOLDER READY NAME=[" INSIDE "]SERVER... "
			     "-- [NAME LOAD]...");
	kind = measure_parse_kind(argv[1]);
	if (kind == MEASURE_MEASURED)
		measure_pin(LOAD_CPU);
	measure_calibrate(kind);
	turns = (unsigned int)measure_parse_number("TURNS", argv[2], 1000);
	for (at = 5; at < argc && strcmp(argv[at], "--"); at++)
		add(argv[at], argv[3], argv[4]);
	for (at++; at + 1 < argc; at += 2) {
		take_turns(argv[at], argv[at + 1], turns);
		measure_progress((unsigned int)at, (unsigned int)argc);
	}
	while (count--) {
		if (servers[count].inside)
			report_calls(&servers[count]);
		stop(&servers[count]);
	}
	printf("{\"complete\": true}\n");
	return 0;
}
