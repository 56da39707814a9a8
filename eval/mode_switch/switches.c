// SPDX-License-Identifier: GPL-2.0-only
/*
 * Measures what a switch costs the process that asks for it: one that switches itself, and one that
 * switches another, which sleeps meanwhile. An empty request to the module shows the cost of the
 * way there and back. After each switch it proves that the mode has changed.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mode.h"
#include "workload.h"

#define TRIES_MAX 100	/* for so many repeats without a timer tick */

/* A process that makes a few calls whenever it is told to, and says at which level they ended. */
struct target {
	pid_t pid;
	int orders, answers;
};

struct request {
	int module;
	pid_t pid;
	enum tl_mode mode;
};

static void __attribute__((noreturn)) serve(int orders, int answers)
{
	char level;

	while (read(orders, &level, 1) == 1) {
		getppid();	/* the first call that begins after the switch */
		getppid();
		level = (char)('0' + mode_level());
		if (write(answers, &level, 1) != 1)
			break;
	}
	_exit(0);
}

static struct target start_target(void)
{
	struct target target;
	int down[2], up[2];

	if (pipe(down) || pipe(up))
		measure_fail("pipe: %s", strerror(errno));
	fflush(stdout);
	target.pid = fork();
	if (target.pid < 0)
		measure_fail("cannot fork: %s", strerror(errno));
	if (!target.pid) {
		close(down[1]);
		serve(down[0], up[1]);
	}
	close(down[0]);
	close(up[1]);
	target.orders = down[1];
	target.answers = up[0];
	return target;
}

static void stop_target(struct target target)
{
	int status;

	close(target.orders);
	close(target.answers);
	if (waitpid(target.pid, &status, 0) != target.pid || status)
		measure_fail("the target ended with status %#x", (unsigned int)status);
}

static unsigned int level_of(struct target target)
{
	char level = 0;

	if (write(target.orders, &level, 1) != 1 || read(target.answers, &level, 1) != 1)
		measure_fail("the target does not answer: %s", strerror(errno));
	return (unsigned int)(level - '0');
}

static unsigned int own_level(void)
{
	getppid();
	return mode_level();
}

static void make_switch(void *arg)
{
	struct request *request = arg;

	mode_switch(request->module, request->pid, request->mode, 0);
}

static void make_nothing(void *arg)
{
	struct request *request = arg;
	struct tl_supervisor info = { .size = sizeof(info) };

	if (ioctl(request->module, TL_IOC_SUPERVISOR, &info))
		measure_fail("an empty request failed: %s", strerror(errno));
}

static void print_row(const char *name, const char *from, uint64_t value, unsigned int repeat)
{
	printf("{\"kind\": \"counted\", \"switch\": \"%s\", \"from\": \"%s\", \"value\": %lu, "
	       "\"unit\": \"instructions\", \"repeat\": %u}\n", name, from, value, repeat);
}

/* To supervisor mode and back, until there are enough of both without a timer tick. */
static void count_pairs(const struct workload *workload, const struct target *target)
{
	static const char *const names[] = {
		[TL_MODE_USER] = "user", [TL_MODE_SUPERVISOR] = "supervisor",
	};
	const char *from = target ? "outside" : "self";
	unsigned int clean[2] = { 0 }, tries = 0;

	while (clean[0] <= workload->repeats || clean[1] <= workload->repeats) {
		if (++tries == TRIES_MAX + workload->repeats)
			measure_fail("a timer tick in each of %u switches", tries);
		for (int mode = TL_MODE_SUPERVISOR; mode >= TL_MODE_USER; mode--) {
			struct request request = {
				workload->module, target ? target->pid : 0, (enum tl_mode)mode,
			};
			unsigned int wanted = mode == TL_MODE_SUPERVISOR ? 0 : 3, level;
			uint64_t value;
			bool whole = measure_once(MEASURE_COUNTED, make_switch, &request, &value);

			level = target ? level_of(*target) : own_level();
			if (level != wanted)
				measure_fail("switched to %s mode from %s, and at privilege "
					     "level %u", names[mode], from, level);
			/* The first of each warms up. */
			if (whole && clean[mode]++ && clean[mode] <= workload->repeats + 1)
				print_row(names[mode], from, value, clean[mode] - 2);
		}
	}
}

void switches_count(const struct workload *workload)
{
	struct request request = { .module = workload->module };
	struct target target;
	uint64_t value;

	for (unsigned int repeat = 0; repeat < workload->repeats; repeat++) {
		make_nothing(&request);
		while (!measure_once(MEASURE_COUNTED, make_nothing, &request, &value))
			;
		print_row("none", "self", value, repeat);
	}
	count_pairs(workload, NULL);
	target = start_target();
	level_of(target);
	count_pairs(workload, &target);
	stop_target(target);
}
