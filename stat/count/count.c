// SPDX-License-Identifier: GPL-2.0-only
/*
 * Counts a command: `trapless-count [--software] OUTPUT COMMAND...` runs it and writes one row of
 * what the processor and the kernel, or the kernel alone, counted in it and its children. It owns
 * the command line and the exit status: that of the command, or STAT_NOT_COUNTED.
 */
#include "processor_counters.h"
#include "stat_labels.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOT_EXECUTED 126
#define NOT_FOUND 127

/*
 * Forks a child that waits for a byte from `go`, so that counters can be opened for it. It is
 * killed when this process ends: nobody else knows of a command whose counter was killed.
 */
static pid_t prepare(char **argv, int go[2])
{
	int status;
	pid_t child;
	char word;

	if (pipe(go))
		return -1;
	child = fork();
	if (child != 0)
		return child;
	close(go[1]);
	if (prctl(PR_SET_PDEATHSIG, SIGTERM) || read(go[0], &word, 1) != 1)
		_exit(NOT_EXECUTED);
	close(go[0]);
	execvp(argv[0], argv);
	status = errno == ENOENT ? NOT_FOUND : NOT_EXECUTED;
	fprintf(stderr, "trapless-count: %s: %s\n", argv[0], strerror(errno));
	_exit(status);
}

static int fail(const char *what, const char *why)
{
	fprintf(stderr, "trapless-count: %s: %s\n", what, why);
	return STAT_NOT_COUNTED;
}

int main(int argc, char **argv)
{
	const struct tl_counter_event *events = NULL;
	char error[TL_COUNTERS_ERROR_MAX];
	struct tl_counter_values values;
	struct tl_counters counters;
	int go[2], status;
	FILE *output;
	pid_t child;

	if (argc > 1 && strcmp(argv[1], "--software") == 0) {
		events = tl_counters_software;
		argv++;
		argc--;
	}
	if (argc < 3) {
		fprintf(stderr, "usage: trapless-count [--software] OUTPUT COMMAND...\n");
		return STAT_NOT_COUNTED;
	}
	/* A refusal must come before the command begins. */
	if (tl_counters_open(&counters, 0, false, events, error)) {
		fprintf(stderr, "trapless-count: %s\n", error);
		return STAT_NOT_COUNTED;
	}
	tl_counters_close(&counters);
	output = fopen(argv[1], "we");
	if (!output)
		return fail(argv[1], strerror(errno));
	child = prepare(argv + 2, go);
	if (child < 0)
		return fail("cannot start a process", strerror(errno));
	if (tl_counters_open(&counters, child, true, events, error))
		return fail(argv[2], error); /* and the child ends without its byte */
	tl_counters_header(&counters, output);
	if (write(go[1], "", 1) != 1 || waitpid(child, &status, 0) != child ||
	    tl_counters_read(&counters, &values))
		return fail("the counters cannot be read", strerror(errno));
	close(go[0]);
	close(go[1]);
	tl_counters_row(&counters, &values, 0, output);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
