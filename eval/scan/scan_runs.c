// SPDX-License-Identifier: GPL-2.0-only
/*
 * The workload of experiment scan: reads directories and trees with the attributes of all entries,
 * by each way, and prints one row of JSON a run. It owns the files, the order of things and the
 * comparison of what the ways have found; the ways themselves are in ways.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "measure.h"
#include "options.h"
#include "ways.h"

#define WARM_UPS 2
#define ENTRIES_MAX 1000000u
#define FILES_EACH 9u		/* in each directory of a tree that has no others */

/* --calls: what is read. --directory: where; for "procfs" it is /proc. */
static const char *call;
static bool cold;
static pid_t child;

static struct options parse(int argc, char **argv)
{
	static const struct option long_options[] = {
		OPTIONS_SHARED, { "cold", no_argument, NULL, 'C' }, { NULL, 0, NULL, 0 },
	};
	struct options options = {
		.kind = MEASURE_COUNTED, .calls = "tmpfs", .directory = "/tmp", .repeats = 3,
		.mechanisms = "statx,scan,scan-plain,batch,io_uring,readdir,fts,walk,walk-plain",
		.seed = 1, .sizes = { 1000 }, .size_count = 1,
	};
	int letter;

	while ((letter = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
		if (letter == 'C')
			cold = true;
		else if (!options_take(&options, letter, optarg, ENTRIES_MAX))
			measure_fail("usage: scan [--cold] " OPTIONS_SHARED_USAGE);
	}
	call = options.calls;
	return options;
}

/* ---- Files --------------------------------------------------------------------------------- */

static int make_directory(int at, const char *name)
{
	int fd;

	if (mkdirat(at, name, 0755) || (fd = openat(at, name, O_RDONLY | O_DIRECTORY)) < 0)
		measure_fail("cannot make %s: %s", name, strerror(errno));
	return fd;
}

static void make_files(int at, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++) {
		char name[32];
		int fd;

		snprintf(name, sizeof(name), "file-%05u.txt", i);
		fd = openat(at, name, O_CREAT | O_EXCL | O_WRONLY, 0644);
		if (fd < 0)
			measure_fail("cannot make %s: %s", name, strerror(errno));
		close(fd);
	}
}

/* Directories in three levels, `width` in each, with files in the last. */
static void make_tree(int at, unsigned int width, unsigned int levels)
{
	if (!levels) {
		make_files(at, FILES_EACH);
		return;
	}
	for (unsigned int i = 0; i < width; i++) {
		char name[16];
		int fd;

		snprintf(name, sizeof(name), "dir-%03u", i);
		fd = make_directory(at, name);
		make_tree(fd, width, levels - 1);
		close(fd);
	}
}

static void *wait_for_ever(void *unused)
{
	for (;;)
		pause();
	return unused;
}

/* The threads of a child are the entries of its folder in /proc, and nobody else's come and go. */
static void start_threads(unsigned int n)
{
	pthread_attr_t attributes;
	int ready[2];
	char byte;

	if (pipe(ready))
		measure_fail("pipe: %s", strerror(errno));
	child = fork();
	if (child < 0)
		measure_fail("fork: %s", strerror(errno));
	if (child) {
		if (read(ready[0], &byte, 1) != 1)
			measure_fail("the child could not start %u threads", n);
		return;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN);
	for (unsigned int i = 1; i < n; i++) {
		pthread_t thread;

		if (pthread_create(&thread, &attributes, wait_for_ever, NULL))
			_exit(1);
	}
	if (write(ready[1], "", 1) == 1)
		wait_for_ever(NULL);
	_exit(1);
}

static void end_threads(void)
{
	if (!child)
		return;
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}

/* Makes what is read, and stores its path. */
static void prepare(const struct options *options, unsigned int n, char *path, size_t room)
{
	int at, fd;

	if (!strcmp(call, "procfs")) {
		end_threads();
		start_threads(n);
		snprintf(path, room, "%s/%d/task", options->directory, child);
		return;
	}
	snprintf(path, room, "%s/%s-%u", options->directory, call, n);
	at = open(options->directory, O_RDONLY | O_DIRECTORY);
	if (at < 0)
		measure_fail("%s: %s", options->directory, strerror(errno));
	fd = make_directory(at, strrchr(path, '/') + 1);
	if (!strcmp(call, "tree"))
		make_tree(fd, n, 3);
	else
		make_files(fd, n);
	close(fd);
	close(at);
}

static void drop_caches(void)
{
	int fd = open("/proc/sys/vm/drop_caches", O_WRONLY);

	sync();
	if (fd < 0 || write(fd, "3", 1) != 1)
		measure_fail("cannot drop the kernel's caches: %s", strerror(errno));
	close(fd);
}

/* ---- Runs ---------------------------------------------------------------------------------- */

static bool wanted(const struct options *options, const struct way *way)
{
	return way->tree == !strcmp(call, "tree") &&
	       measure_list_has(options->mechanisms, way->name) && !way_missing(way);
}

static void run_way(const struct options *options, const struct way *way, const char *path,
		    unsigned int n, struct job *first)
{
	for (unsigned int i = 0; i < WARM_UPS + options->repeats; i++) {
		struct job job = { .path = path };
		uint64_t value;
		bool clean;

		if (cold)
			drop_caches();
		measure_await_tick();
		clean = measure_once(options->kind, way->run, &job, &value);
		if (!first->path)
			*first = job;
		if (job.bad || job.entries != first->entries || job.sum != first->sum)
			measure_fail("%s by %s, %u: %lu entries, expected %lu; sum %lx, not %lx%s",
				     call, way->name, n, job.entries, first->entries, job.sum,
				     first->sum, job.bad ? "; a call failed" : "");
		if (i >= WARM_UPS)
			printf("{\"mechanism\": \"%s\", \"call\": \"%s%s\", \"n\": %u, "
			       "\"kind\": \"%s\", \"value\": %lu, \"unit\": \"%s\", "
			       "\"ops\": %lu, \"ticks\": %d}\n", way->name, call,
			       cold ? "-cold" : "", n,
			       options->kind == MEASURE_COUNTED ? "counted" : "measured", value,
			       measure_unit(options->kind), job.entries, !clean);
	}
}

int main(int argc, char **argv)
{
	struct options options = parse(argc, argv);
	char path[256];

	measure_pin(0);
	measure_calibrate(options.kind);
	ways_open();
	for (unsigned int i = 0; i < options.size_count; i++) {
		struct job first = { 0 };

		prepare(&options, options.sizes[i], path, sizeof(path));
		for (unsigned int w = 0; w < ways_n; w++)
			if (wanted(&options, &ways[w]))
				run_way(&options, &ways[w], path, options.sizes[i], &first);
		printf("{\"check\": \"%s.n%u: all ways find the same\", \"entries\": %lu, "
		       "\"sum\": %lu}\n", call, options.sizes[i], first.entries, first.sum);
		measure_progress(i + 1, options.size_count);
	}
	for (unsigned int w = 0; w < ways_n; w++)
		if (way_missing(&ways[w]))
			printf("{\"skipped\": \"%s\", \"reason\": \"%s\"}\n", ways[w].name,
			       way_missing(&ways[w]));
	end_threads();
	ways_close();
	printf("{\"complete\": true}\n");
	return 0;
}
