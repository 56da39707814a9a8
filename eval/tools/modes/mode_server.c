// SPDX-License-Identifier: GPL-2.0-only
/*
 * A server that works on the same load in user and in supervisor mode by turns, and at last while
 * it is switched back and forth.
 *
 * The server is one process or a parent and its children; all are switched from outside. The load
 * is a command of the shell. Its last line is "requests N"; the lines before must be the same in
 * every run, so they show whether the replies are right. What a run costs is the processor time of
 * the server's processes.
 */
#include <arpa/inet.h>
#include <ctype.h>
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

#include "mode_run.h"

#define PROCESSES_MAX 16u
#define READY_TRIES 600u
#define READY_PAUSE_NS 50000000
#define SWITCH_PAUSE_NS 5000000	/* between two switches of a serving server */
#define SWITCHES_MIN 10u	/* that a load must last for, to show anything */

struct server {
	const struct job *job;
	pid_t pids[PROCESSES_MAX];
	unsigned int count;
};

static void pause_ns(long ns)
{
	const struct timespec pause = { .tv_nsec = ns };

	nanosleep(&pause, NULL);
}

static bool answers(unsigned int port)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_port = htons((uint16_t)port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool ok = fd >= 0 && !connect(fd, (struct sockaddr *)&address, sizeof(address));

	close(fd);
	return ok;
}

static pid_t parent_of(const char *pid)
{
	char name[64], line[512] = "";
	const char *end;
	int parent = -1;
	FILE *file;

	snprintf(name, sizeof(name), "/proc/%.20s/stat", pid);
	file = fopen(name, "re");
	if (!file)
		return -1; /* it has just ended */
	if (fgets(line, sizeof(line), file) && (end = strrchr(line, ')')))
		sscanf(end, ") %*c %d", &parent);
	fclose(file);
	return parent;
}

static void find_children(struct server *server)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;

	if (!proc)
		measure_fail("cannot list /proc: %s", strerror(errno));
	while ((entry = readdir(proc))) {
		if (!isdigit((unsigned char)entry->d_name[0]) ||
		    parent_of(entry->d_name) != server->pids[0])
			continue;
		if (server->count == PROCESSES_MAX)
			measure_fail("%s has too many processes", server->job->argv[0]);
		server->pids[server->count++] = atoi(entry->d_name);
	}
	closedir(proc);
}

static void start(struct server *server)
{
	const struct job *job = server->job;
	unsigned int tries = 0;

	server->pids[0] = run_start(job, job->argv, TL_MODE_USER, OF_SERVER);
	server->count = 1;
	while (!answers(job->port)) {
		if (waitpid(server->pids[0], NULL, WNOHANG) || tries++ == READY_TRIES)
			measure_fail("%s does not answer on port %u; see %s", job->argv[0],
				     job->port, run_output(job, OF_SERVER));
		pause_ns(READY_PAUSE_NS);
	}
}

static void stop(struct server *server)
{
	int status;

	kill(server->pids[0], SIGTERM);
	if (waitpid(server->pids[0], &status, 0) != server->pids[0])
		measure_fail("cannot wait for %s: %s", server->job->argv[0], strerror(errno));
	run_check_status(server->job, "user", server->job->argv[0], status);
}

static void switch_all(const struct server *server, enum tl_mode mode)
{
	for (unsigned int i = 0; i < server->count; i++)
		device_switch(server->pids[i], mode, TL_SWITCH_CHILDREN | TL_SWITCH_ANY_USER);
}

static uint64_t cost_ns(const struct server *server)
{
	uint64_t sum = 0;

	for (unsigned int i = 0; i < server->count; i++) {
		struct timespec used;
		clockid_t clock;

		if (clock_getcpuclockid(server->pids[i], &clock) || clock_gettime(clock, &used))
			measure_fail("%s: its process %d is gone", server->job->argv[0],
				     server->pids[i]);
		sum += (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
	}
	return sum;
}

static struct calls calls_of_all(const struct server *server)
{
	struct calls sum = { 0 };

	for (unsigned int i = 0; i < server->count; i++) {
		struct calls calls = device_calls_of(server->pids[i]);

		calls_add(&sum, &calls);
	}
	return sum;
}

static pid_t load_begin(const struct job *job)
{
	char *const argv[] = { "/bin/sh", "-c", (char *)job->load, NULL };

	return run_start(job, argv, TL_MODE_USER, GOT);
}

/* Takes the last line off the load's output; returns its number. */
static uint64_t take_requests(const struct job *job)
{
	const char *name = run_output(job, GOT);
	FILE *file = fopen(name, "re");
	uint64_t requests = 0;
	char line[256];
	long last = 0, begin = 0;

	while (file && fgets(line, sizeof(line), file)) {
		last = begin;
		begin = ftell(file);
		requests = 0;
		sscanf(line, "requests %" SCNu64, &requests);
	}
	if (!file || !requests || truncate(name, last))
		measure_fail("%s: the load did not say how many requests it made", job->call);
	fclose(file);
	return requests;
}

static uint64_t load_end(const struct job *job, const char *mode, pid_t pid)
{
	int status;

	if (waitpid(pid, &status, 0) != pid)
		measure_fail("cannot wait for the load: %s", strerror(errno));
	run_check_status(job, mode, "the load", status);
	return take_requests(job);
}

static void load_in(const struct server *server, enum tl_mode mode, unsigned int repeat)
{
	const char *name = mode == TL_MODE_USER ? "user" : "supervisor";
	const struct job *job = server->job;
	struct calls begin = { 0 }, end, calls;
	uint64_t cost, requests;

	if (job->switchable) {
		switch_all(server, mode);
		begin = calls_of_all(server);
	}
	cost = cost_ns(server);
	requests = load_end(job, name, load_begin(job));
	run_print_cost(job, mode, cost_ns(server) - cost, requests, repeat);
	run_compare(job, name);
	if (mode == TL_MODE_USER)
		return;
	end = calls_of_all(server);
	calls = calls_difference(&end, &begin);
	run_print_calls(job, &calls, repeat);
}

/* The load once more, while the server goes from mode to mode. */
static void load_in_both(const struct server *server)
{
	const struct job *job = server->job;
	pid_t load = load_begin(job);
	unsigned int switches = 0;
	siginfo_t ended = { 0 };

	while (!waitid(P_PID, (id_t)load, &ended, WEXITED | WNOHANG | WNOWAIT) && !ended.si_pid) {
		switch_all(server, switches++ % 2 ? TL_MODE_USER : TL_MODE_SUPERVISOR);
		pause_ns(SWITCH_PAUSE_NS);
	}
	load_end(job, "both", load);
	run_compare(job, "both");
	if (switches < SWITCHES_MIN)
		measure_fail("%s: the load was over after %u switches", job->call, switches);
	switch_all(server, TL_MODE_USER);
	printf("{\"check\": \"%s: the same replies while it is switched\", \"switches\": %u}\n",
	       job->call, switches);
}

void server_run(const struct job *job)
{
	struct server server = { .job = job };

	start(&server);
	load_end(job, "user", load_begin(job));
	find_children(&server); /* a parent may answer before its children serve: now they do */
	if (rename(run_output(job, GOT), run_output(job, EXPECTED)))
		measure_fail("cannot keep the output of %s: %s", job->call, strerror(errno));
	for (unsigned int repeat = 0; repeat < job->repeats; repeat++) {
		load_in(&server, TL_MODE_USER, repeat);
		if (job->switchable)
			load_in(&server, TL_MODE_SUPERVISOR, repeat);
	}
	if (job->switchable)
		load_in_both(&server);
	stop(&server);
	printf("{\"check\": \"%s: the same replies in every run\"}\n", job->call);
}
