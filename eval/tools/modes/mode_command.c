// SPDX-License-Identifier: GPL-2.0-only
/*
 * A command from its start to its end, in user and in supervisor mode by turns.
 *
 * The first two runs are in user mode and warm the caches (the kernel moves a file's page to
 * another list when it is read a second time); the very first gives the output that all others
 * must give, too. What a run costs is the processor time of the command and of all processes it
 * waited for, as the scheduler tells it: sleeping costs nothing.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mode_run.h"

static uint64_t time_ns(const struct timeval *time)
{
	return 1000 * (1000000u * (uint64_t)time->tv_sec + (uint64_t)time->tv_usec);
}

/* One run; returns its cost. */
static uint64_t once(const struct job *job, enum tl_mode mode)
{
	pid_t pid = run_start(job, job->argv, mode, GOT);
	struct rusage usage;
	int status;

	if (wait4(pid, &status, 0, &usage) != pid)
		measure_fail("cannot wait for %s: %s", job->argv[0], strerror(errno));
	run_check_status(job, mode == TL_MODE_USER ? "user" : "supervisor", job->argv[0], status);
	return time_ns(&usage.ru_utime) + time_ns(&usage.ru_stime);
}

static void once_in_supervisor_mode(const struct job *job, unsigned int repeat)
{
	struct calls begin = device_calls_of_ended(), end, calls;
	uint64_t cost_ns = once(job, TL_MODE_SUPERVISOR);

	end = device_calls_of_ended();
	calls = calls_difference(&end, &begin);
	run_print_cost(job, TL_MODE_SUPERVISOR, cost_ns, 1, repeat);
	run_print_calls(job, &calls, repeat);
	run_compare(job, "supervisor");
}

void command_run(const struct job *job)
{
	uint64_t bytes = 0;

	once(job, TL_MODE_USER);
	if (rename(run_output(job, GOT), run_output(job, EXPECTED)))
		measure_fail("cannot keep the output of %s: %s", job->call, strerror(errno));
	once(job, TL_MODE_USER);
	for (unsigned int repeat = 0; repeat < job->repeats; repeat++) {
		run_print_cost(job, TL_MODE_USER, once(job, TL_MODE_USER), 1, repeat);
		bytes = run_compare(job, "user");
		if (job->switchable)
			once_in_supervisor_mode(job, repeat);
	}
	printf("{\"check\": \"%s: the same output in every run\", \"bytes\": %" PRIu64 "}\n",
	       job->call, bytes);
}
