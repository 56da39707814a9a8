// SPDX-License-Identifier: GPL-2.0-only
/*
 * Runs the loops in each mode: counted one mode after the other, measured in random order, and once
 * more for so long that interrupts come in between. After each run it proves that results were
 * right and that the calls returned at the privilege level that the mode promises.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "perf_events.h"
#include "loops.h"
#include "mode.h"
#include "workload.h"

#define RETRIES_MAX 40	/* a counted run that an interrupt fell into is made again */
#define INTERRUPT_MIN 20000u	/* instructions: more than calls of one kind differ by */
#define DEMOTIONS_MAX 100	/* runs in a row that interrupts spoil: more have another cause */
#define LOOKS 8		/* runs that find the cost of a run that nothing interrupts */

/*
 * TRAP: calls by traps, the mechanism absent. The others are of a machine that has it: loaded, with
 * nobody switched yet; another process in supervisor mode; this one in supervisor mode; this one
 * switched back to user mode.
 */
enum mechanism { TRAP, TRAP_LOADED, TRAP_PRESENT, SUPERVISOR, TRAP_BACK, MECHANISMS };

static const char *const names[MECHANISMS] = {
	[TRAP] = "trap", [TRAP_LOADED] = "trap-loaded", [TRAP_PRESENT] = "trap-present",
	[SUPERVISOR] = "supervisor", [TRAP_BACK] = "trap-back",
};

/* A process in supervisor mode that sleeps: the mechanism is in use, but not by the caller. */
static pid_t start_other(const struct workload *workload)
{
	struct tl_process counts;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid < 0)
		measure_fail("cannot fork: %s", strerror(errno));
	if (!pid) {
		mode_switch(workload->module, 0, TL_MODE_SUPERVISOR, 0);
		close_range(STDERR_FILENO + 1, ~0u, 0);	/* a shared file is read under a lock */
		while (getppid() != 1)	/* ends with its parent at the latest */
			sleep(1);
		_exit(0);
	}
	do {	/* until it has made a call in supervisor mode and sleeps in another */
		usleep(10000);
		mode_counts(workload->module, pid, &counts);
	} while (!counts.calls_direct);
	return pid;
}

static void stop_other(pid_t pid)
{
	int status;

	kill(pid, SIGKILL);
	if (waitpid(pid, &status, 0) != pid)
		measure_fail("waitpid: %s", strerror(errno));
}

/* Brings the machine into the state that `mechanism` names; the order of enum mechanism is kept. */
static void enter(const struct workload *workload, enum mechanism mechanism)
{
	unsigned int wanted = mechanism == SUPERVISOR ? 0 : 3;

	if (mechanism == SUPERVISOR)
		mode_switch(workload->module, 0, TL_MODE_SUPERVISOR, 0);
	else if (mechanism == TRAP_BACK)
		mode_switch(workload->module, 0, TL_MODE_USER, 0);
	getppid();	/* at the latest here it has changed */
	getppid();
	/* An interrupt just here demotes the thread until the end of its next call. */
	for (int i = 0; i < DEMOTIONS_MAX && mode_level() != wanted; i++)
		getppid();
	if (mode_level() != wanted)
		measure_fail("%s: at privilege level %u, not %u", names[mechanism], mode_level(),
			     wanted);
}

/* One run with its checks. False: an interrupt fell into it. */
static bool run_checked(const struct workload *workload, enum mechanism mechanism,
			struct loop *loop, uint64_t *value)
{
	bool clean;

	loop_begin(loop);
	getppid();	/* after an interrupt the first call would begin in user mode */
	clean = measure_once(workload->kind, loop_run, loop, value);
	loop_check(loop, names[mechanism]);
	if (mechanism != SUPERVISOR && loop->ended_user != loop->count)
		measure_fail("%s by %s: %lu of %u calls returned in user mode",
			     call_name(loop->call), names[mechanism], loop->ended_user,
			     loop->count);
	/*
	 * An interrupt that is no timer tick shows only because it takes the program out of the
	 * mode.
	 */
	if (mechanism == SUPERVISOR && (loop->begun_user || loop->ended_user))
		clean = false;
	return clean;
}

static void print_row(const struct workload *workload, enum mechanism mechanism,
		      const struct loop *loop, uint64_t value, unsigned int repeat)
{
	printf("{\"kind\": \"%s\", \"mechanism\": \"%s\", \"call\": \"%s\", \"form\": \"%s\", "
	       "\"value\": %lu, \"unit\": \"%s\", \"ops\": %u, \"repeat\": %u, "
	       "\"begun_user\": %lu, \"ended_user\": %lu}\n",
	       workload->kind == MEASURE_COUNTED ? "counted" : "measured", names[mechanism],
	       call_name(loop->call), loop->form == BARE ? "bare" : workload->link, value,
	       measure_unit(workload->kind), loop->count, repeat, loop->begun_user,
	       loop->ended_user);
}

/*
 * A first few runs warm up and show what one takes. A run that takes far longer was interrupted, if
 * not by a tick: on some kernels other timers fire, too, and do a million instructions of work.
 */
static void count_one(const struct workload *workload, enum mechanism mechanism,
		      struct loop *loop)
{
	uint64_t value, least = UINT64_MAX;
	unsigned int interrupted = 0;

	for (unsigned int look = 0; look < LOOKS; look++)
		if (run_checked(workload, mechanism, loop, &value) && value < least)
			least = value;
	for (unsigned int repeat = 0; repeat < workload->repeats; repeat++) {
		while (!run_checked(workload, mechanism, loop, &value) ||
		       (value > least && value - least > INTERRUPT_MIN)) {
			if (++interrupted == RETRIES_MAX)
				measure_fail("%s by %s: interrupted in each of %u runs",
					     call_name(loop->call), names[mechanism],
					     interrupted);
			measure_await_tick();
		}
		print_row(workload, mechanism, loop, value, repeat);
	}
}

/* All calls that were asked for in both forms, each beside the empty loop of its length. */
static void count_mechanism(const struct workload *workload, enum mechanism mechanism)
{
	for (unsigned int form = 0; form < FORMS; form++) {
		for (unsigned int call = EMPTY + 1; call < CALLS; call++) {
			struct loop loop = { .call = (enum call)call, .form = (enum form)form };

			loop.count = call_count(loop.call);
			if (measure_list_has(workload->calls, call_name(loop.call)) &&
			    loop_exists(loop.call, loop.form))
				count_one(workload, mechanism, &loop);
		}
		for (unsigned int call = GETPID; call <= READ; call += READ - GETPID) {
			struct loop loop = { .call = EMPTY, .form = (enum form)form };

			loop.count = call_count((enum call)call);
			count_one(workload, mechanism, &loop);
		}
	}
}

void calls_count(const struct workload *workload)
{
	unsigned int first = workload->module < 0 ? TRAP : TRAP_LOADED;
	unsigned int last = workload->module < 0 ? TRAP : TRAP_BACK;
	pid_t other = 0;

	for (unsigned int i = first; i <= last; i++) {
		enum mechanism mechanism = (enum mechanism)i;

		if (mechanism == TRAP_LOADED && mode_processes(workload->module))
			measure_fail("a process is switched already");
		if (mechanism == TRAP_PRESENT)
			other = start_other(workload);
		enter(workload, mechanism);
		count_mechanism(workload, mechanism);
		measure_progress(i - first + 1, last - first + 1);
	}
	if (other)
		stop_other(other);
}

/* The same run once more with a group of the processor's events counted, in a row of its own. */
static void count_events(const struct workload *workload, enum mechanism mechanism,
			 struct loop *loop, unsigned int repeat)
{
	unsigned int group = repeat % events_groups();
	bool whole;

	loop_begin(loop);
	getppid();
	whole = events_count(group, loop_run, loop);
	loop_check(loop, names[mechanism]);
	if (!whole)
		return;
	printf("{\"kind\": \"events\", \"mechanism\": \"%s\", \"call\": \"%s\", "
	       "\"form\": \"%s\", \"ops\": %u, \"repeat\": %u, ", names[mechanism],
	       call_name(loop->call), loop->form == BARE ? "bare" : workload->link, loop->count,
	       repeat);
	events_print(group);
	printf("}\n");
}

static void measure_call(const struct workload *workload, enum call call, enum form form)
{
	unsigned int mechanisms[] = { TRAP_BACK, SUPERVISOR };
	unsigned int count = workload->module < 0 ? 1 : 2;
	uint64_t value;

	if (workload->module < 0)
		mechanisms[0] = TRAP;
	for (unsigned int repeat = 0; repeat < workload->repeats; repeat++) {
		measure_shuffle(mechanisms, count);
		for (unsigned int i = 0; i < count; i++) {
			enum mechanism mechanism = (enum mechanism)mechanisms[i];
			struct loop loop = { .call = call, .form = form,
					     .count = call_count(call) };

			enter(workload, mechanism);
			run_checked(workload, mechanism, &loop, &value);
			run_checked(workload, mechanism, &loop, &value);
			print_row(workload, mechanism, &loop, value, repeat);
			if (events_groups())
				count_events(workload, mechanism, &loop, repeat);
		}
	}
	if (workload->module >= 0)
		enter(workload, TRAP_BACK);
}

void calls_measure(const struct workload *workload)
{
	unsigned int done = 0;

	for (unsigned int form = 0; form < FORMS; form++) {
		for (unsigned int call = EMPTY + 1; call < CALLS; call++, done++) {
			if (measure_list_has(workload->calls, call_name((enum call)call)) &&
			    loop_exists((enum call)call, (enum form)form))
				measure_call(workload, (enum call)call, (enum form)form);
			measure_progress(done + 1, FORMS * (CALLS - 1));
		}
	}
}

/*
 * Interrupts of all kinds that all CPUs have taken so far, as the kernel counts them. Without
 * stdio, whose buffers would move the break.
 */
static uint64_t interrupts(void)
{
	static char text[1 << 16];
	int fd = open("/proc/stat", O_RDONLY | O_CLOEXEC);
	ssize_t size = 0, piece;
	char *line;

	while (fd >= 0 && (piece = read(fd, text + size, sizeof(text) - 1 - (size_t)size)) > 0)
		size += piece;
	text[size] = 0;
	line = strstr(text, "\nintr ");
	if (fd < 0 || !line)
		measure_fail("/proc/stat does not count interrupts");
	close(fd);
	return strtoull(line + strlen("\nintr "), NULL, 10);
}

static void events_of(const struct workload *workload, enum mechanism mechanism)
{
	struct loop loop = { .call = GETPID, .form = BARE, .count = workload->events & ~1u };
	struct tl_process before = { 0 }, after = { 0 };
	struct rusage usage[2];
	uint64_t value, taken, stayed, left;

	enter(workload, mechanism);
	loop_begin(&loop);
	taken = interrupts();
	getrusage(RUSAGE_SELF, &usage[0]);
	if (workload->module >= 0)
		mode_counts(workload->module, 0, &before);
	measure_once(workload->kind, loop_run, &loop, &value);
	if (workload->module >= 0)
		mode_counts(workload->module, 0, &after);
	getrusage(RUSAGE_SELF, &usage[1]);
	taken = interrupts() - taken;
	loop_check(&loop, names[mechanism]);
	stayed = mode_calls_stayed(&after) - mode_calls_stayed(&before);
	left = mode_calls_left(&after) - mode_calls_left(&before);
	/* The request for the first counts is itself among the calls; the second may be. */
	if (mechanism == SUPERVISOR &&
	    (stayed + left < loop.count || stayed + left > loop.count + 2))
		measure_fail("%u calls were made in supervisor mode, but the module counts %lu",
			     loop.count, stayed + left);
	/* A call that returned at level 0 may be demoted before the program has looked. */
	if (mechanism == SUPERVISOR &&
	    loop.ended_user > left + mode_demotions(&after) - mode_demotions(&before))
		measure_fail("%lu calls ended in user mode, but the module counts %lu, and %lu "
			     "demotions", loop.ended_user, left,
			     mode_demotions(&after) - mode_demotions(&before));
	printf("{\"events\": \"%s\", \"calls\": %u, \"value\": %lu, \"unit\": \"%s\", "
	       "\"begun_user\": %lu, \"ended_user\": %lu, \"stayed\": %lu, \"left\": %lu, "
	       "\"demotions\": %lu, \"by_interrupt\": %lu, \"interrupts\": %lu, "
	       "\"rescheduled\": %ld}\n",
	       names[mechanism], loop.count, value, measure_unit(workload->kind), loop.begun_user,
	       loop.ended_user, stayed, left, mode_demotions(&after) - mode_demotions(&before),
	       (unsigned long)(after.demotions[TL_DEMOTED_INTERRUPT] -
			       before.demotions[TL_DEMOTED_INTERRUPT]),
	       taken, usage[1].ru_nivcsw + usage[1].ru_nvcsw - usage[0].ru_nivcsw -
	       usage[0].ru_nvcsw);
}

void calls_events(const struct workload *workload)
{
	if (workload->module < 0) {
		events_of(workload, TRAP);
		return;
	}
	events_of(workload, TRAP_BACK);
	events_of(workload, SUPERVISOR);
	enter(workload, TRAP_BACK);
}
