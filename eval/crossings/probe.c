// SPDX-License-Identifier: GPL-2.0-only
/*
 * probe.c - see probe.h. Everything goes through tracefs.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "measure.h"
#include "probe.h"

#define TRACEFS "/sys/kernel/tracing"
#define DISPATCHER "x64_sys_call"
#define EVENT "trapless/crossing"
#define EVENT_DIR TRACEFS "/events/" EVENT
#define HISTOGRAM "hist:keys=common_pid"
#define TEXT_BYTES (256u * 1024)

/* Write one command to a file of tracefs; 0 or an errno. */
static int command(const char *path, const char *text, int flags)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC | flags);
	int error = 0;

	if (fd < 0)
		return errno;
	if (write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		error = errno;
	close(fd);
	return error;
}

static void must(int error, const char *what)
{
	if (error)
		measure_fail("cannot %s: %s", what, strerror(error));
}

/* The whole text of a file; static. */
static const char *text_of(const char *path)
{
	static char text[TEXT_BYTES];
	size_t used = 0;
	ssize_t n = 1;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		measure_fail("cannot open %s: %s", path, strerror(errno));
	while (n > 0 && used < sizeof(text) - 1) {
		n = read(fd, text + used, sizeof(text) - 1 - used);
		if (n > 0)
			used += (size_t)n;
	}
	close(fd);
	if (n < 0 || used == sizeof(text) - 1)
		measure_fail("cannot read %s: %s", path, n < 0 ? strerror(errno) : "too long");
	text[used] = '\0';
	return text;
}

/* The number behind `label` at or after `text`. */
static uint64_t number_after(const char *text, const char *label)
{
	const char *at = strstr(text, label);

	if (!at)
		measure_fail("the histogram has no '%s'", label);
	return strtoull(at + strlen(label), NULL, 10);
}

void probe_create(void)
{
	int error = command(TRACEFS "/kprobe_events", "p:" EVENT " " DISPATCHER "\n", O_APPEND);

	if (error)
		measure_fail("cannot probe %s: %s; this kernel has no such function, or no kprobe "
			     "events: crossings cannot be counted on it", DISPATCHER,
			     strerror(error));
}

void probe_start(void)
{
	must(command(EVENT_DIR "/trigger", HISTOGRAM "\n", O_APPEND), "set a histogram");
	must(command(EVENT_DIR "/enable", "1\n", 0), "enable the probe");
}

struct probe_count probe_stop(pid_t thread)
{
	struct probe_count count = { 0 };
	const char *text, *at;

	must(command(EVENT_DIR "/enable", "0\n", 0), "disable the probe");
	text = text_of(EVENT_DIR "/hist");
	if (number_after(text, "Dropped:"))
		measure_fail("the histogram dropped crossings");
	for (at = text; (at = strstr(at, "{ common_pid:")); at++) {
		pid_t pid = (pid_t)number_after(at, "common_pid:");
		uint64_t hits = number_after(at, "hitcount:");

		if (pid == thread)
			count.own += hits;
		else if (pid != getpid())
			count.others += hits;
	}
	must(command(EVENT_DIR "/trigger", "!" HISTOGRAM "\n", O_APPEND), "remove the histogram");
	return count;
}

void probe_remove(void)
{
	const char *line = strstr(text_of(TRACEFS "/kprobe_profile"), "crossing");
	uint64_t hits = 0, misses = 0;

	if (!line || sscanf(line, "crossing %" SCNu64 " %" SCNu64, &hits, &misses) != 2)
		measure_fail("kprobe_profile has no line for the probe");
	if (misses)
		measure_fail("the probe missed %" PRIu64 " crossings", misses);
	must(command(TRACEFS "/kprobe_events", "-:" EVENT "\n", O_APPEND), "remove the probe");
}
