// SPDX-License-Identifier: GPL-2.0-only
/*
 * Runs a program in a guest whose emulator has the model, and has the model count what the program
 * and all processes that it starts do. It owns the command line of trapless-stat-guest, which
 * `trapless stat --lab` calls (see usage()), and the order of steps.
 *
 * A command is counted from its exec to its end. A server is counted while a load runs, after a
 * third command says that it is ready; then the server gets SIGTERM. Processes that are left in the
 * control group at the end are killed. With turns, the command or the load runs once for each turn,
 * in user mode or in supervisor mode, and each run is counted by itself: the runs differ only in
 * their mode.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <trapless_model.h>

#include "guest_stat.h"

#define STATUS_CANNOT_EXECUTE 126
#define STATUS_NOT_FOUND 127
#define STATUS_SIGNAL 128
#define WARM_MAX 100
#define READY_LIMIT_S 60
#define READY_PAUSE_NS 100000000
#define TERM_LIMIT_S 10
#define TURN_USER 'u'
#define TURN_SUPERVISOR 's'

struct job {
	char **argv;
	char program[PATH_MAX]; /* the file that argv[0] names */
	const char *module;
	const char *prepare, *load, *ready;
	int warm;
	int ready_limit_s, prepare_limit_s; /* of the guest's own time; 0: none */
	const char *turns; /* TURN_USER and TURN_SUPERVISOR, in their order */
	bool uncalibrated;
	bool calls; /* they are told apart */
	int counting; /* the file of group_count() */
	struct watched watched; /* of an uncounted run */
};

static void __attribute__((noreturn)) usage(void)
{
	fputs("usage: trapless-stat-guest --module FILE [--warm N]\n"
	      "         [--prepare SHELL-COMMAND [--prepare-limit SECONDS]]\n"
	      "         [--load SHELL-COMMAND --ready SHELL-COMMAND [--ready-limit SECONDS]]\n"
	      "         [--turns u|s...] [--uncalibrated] [--calls]\n"
	      "         -- PROGRAM [ARGUMENT]...\n", stderr);
	exit(STAT_NOT_COUNTED);
}

static int parse_number(const char *text, int last)
{
	char *end;
	long value = strtol(text, &end, 10);

	if (end == text || *end || value < 0 || value > last)
		usage();
	return (int)value;
}

static bool turns_are_valid(const struct job *job)
{
	static const char letters[] = { TURN_USER, TURN_SUPERVISOR, '\0' };

	return !job->turns || (*job->turns && strlen(job->turns) <= STAT_TURNS_MAX &&
			       !job->turns[strspn(job->turns, letters)]);
}

static void parse(struct job *job, int argc, char **argv)
{
	enum { MODULE = 256, PREPARE, LOAD, READY, TURNS, WARM, READY_LIMIT, PREPARE_LIMIT,
	       UNCALIBRATED, CALLS };
	static const struct option longs[] = {
		{ "module", required_argument, NULL, MODULE },
		{ "prepare", required_argument, NULL, PREPARE },
		{ "warm", required_argument, NULL, WARM },
		{ "load", required_argument, NULL, LOAD },
		{ "ready", required_argument, NULL, READY },
		{ "ready-limit", required_argument, NULL, READY_LIMIT },
		{ "prepare-limit", required_argument, NULL, PREPARE_LIMIT },
		{ "turns", required_argument, NULL, TURNS },
		{ "uncalibrated", no_argument, NULL, UNCALIBRATED },
		{ "calls", no_argument, NULL, CALLS },
		{ 0 },
	};
	const char **const texts[] = { [MODULE - MODULE] = &job->module,
				       [PREPARE - MODULE] = &job->prepare,
				       [LOAD - MODULE] = &job->load,
				       [READY - MODULE] = &job->ready,
				       [TURNS - MODULE] = &job->turns };
	int option;

	job->ready_limit_s = READY_LIMIT_S;
	while ((option = getopt_long(argc, argv, "+", longs, NULL)) != -1) {
		if (option == WARM)
			job->warm = parse_number(optarg, WARM_MAX);
		else if (option == READY_LIMIT)
			job->ready_limit_s = parse_number(optarg, INT_MAX);
		else if (option == PREPARE_LIMIT)
			job->prepare_limit_s = parse_number(optarg, INT_MAX);
		else if (option == UNCALIBRATED)
			job->uncalibrated = true;
		else if (option == CALLS)
			job->calls = true;
		else if (option >= MODULE && option <= TURNS)
			*texts[option - MODULE] = optarg;
		else
			usage();
	}
	job->argv = argv + optind;
	if (!job->argv[0] || !job->module || !job->load != !job->ready || !turns_are_valid(job))
		usage();
}

/*
 * Finds the file that a name means. execvp() would do so, too, but its attempts in each folder
 * would be counted. A name that is not found stays as it is, and the exec says why.
 */
static void find_program(struct job *job)
{
	const char *folder = getenv("PATH"), *end;
	struct stat status;

	if (!strchr(job->argv[0], '/'))
		for (; folder; folder = *end ? end + 1 : NULL) {
			end = strchrnul(folder, ':');
			snprintf(job->program, sizeof(job->program), "%.*s/%s",
				 (int)(end - folder), folder, job->argv[0]);
			if (!access(job->program, X_OK) && !stat(job->program, &status) &&
			    S_ISREG(status.st_mode))
				return;
		}
	snprintf(job->program, sizeof(job->program), "%s", job->argv[0]);
}

static void __attribute__((noreturn)) fail_to_execute(const struct job *job, int error)
{
	fprintf(stderr, "trapless stat: cannot execute '%s' in the guest: %s\n", job->argv[0],
		strerror(error));
	exit(error == ENOENT ? STATUS_NOT_FOUND : STATUS_CANNOT_EXECUTE);
}

static int shell_status(int status)
{
	return WIFSIGNALED(status) ? STATUS_SIGNAL + WTERMSIG(status) : WEXITSTATUS(status);
}

static void send_to_null(int file)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null < 0 || dup2(null, file) < 0)
		stat_fail("/dev/null: %s", strerror(errno));
	close(null);
}

static int wait_for(pid_t child)
{
	int status;

	while (waitpid(child, &status, 0) != child)
		if (errno != EINTR)
			stat_fail("cannot wait for process %d: %s", child, strerror(errno));
	return shell_status(status);
}

static pid_t start_shell(const char *command, bool quiet)
{
	pid_t child = fork();

	if (child < 0)
		stat_fail("cannot start a process: %s", strerror(errno));
	if (child)
		return child;
	send_to_null(STDIN_FILENO);
	if (quiet) {
		send_to_null(STDOUT_FILENO);
		send_to_null(STDERR_FILENO);
	}
	execl("/bin/sh", "sh", "-c", command, NULL);
	_exit(STATUS_NOT_FOUND);
}

/* Runs a command of the shell and returns its status. */
static int run_shell(const char *command, bool quiet)
{
	return wait_for(start_shell(command, quiet));
}

static void pause_ns(long ns)
{
	const struct timespec pause = { .tv_nsec = ns };

	nanosleep(&pause, NULL);
}

static time_t now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec;
}

/* The limit counts the guest's own time, which may run ahead while a file of the host comes. */
static void prepare(const struct job *job)
{
	pid_t shell = start_shell(job->prepare, false), ended;
	time_t begin = now_s();
	int status;

	while (!(ended = waitpid(shell, &status, job->prepare_limit_s ? WNOHANG : 0))) {
		if (now_s() - begin >= job->prepare_limit_s)
			stat_fail("the command of --prepare did not end within %d s of the guest's "
				  "time: `%s` (--prepare-limit)", job->prepare_limit_s,
				  job->prepare);
		pause_ns(READY_PAUSE_NS);
	}
	if (ended != shell || shell_status(status))
		stat_fail("the command of --prepare failed: `%s`", job->prepare);
}

/* How a process of the program begins. */
struct begin {
	bool quiet; /* its input and output are /dev/null */
	bool supervisor;
	int phase; /* it is counted in this phase from its exec on */
};

static void __attribute__((noreturn)) become(const struct job *job, int report,
					     const struct begin *begin)
{
	int error;

	if (begin->supervisor)
		supervisor_switch(0, true);
	group_enter();
	if (begin->quiet) {
		send_to_null(STDIN_FILENO);
		send_to_null(STDOUT_FILENO);
		send_to_null(STDERR_FILENO);
	}
	if (begin->phase != PHASE_NONE)
		group_count(job->counting, begin->phase);
	execv(job->program, job->argv);
	error = errno;
	if (write(report, &error, sizeof(error)) != sizeof(error))
		_exit(STAT_NOT_COUNTED);
	_exit(STATUS_CANNOT_EXECUTE);
}

/* Starts the program; ends this one where that cannot be executed. */
static pid_t start(const struct job *job, const struct begin *begin)
{
	int report[2], error;
	pid_t child;

	if (pipe2(report, O_CLOEXEC) || (child = fork()) < 0)
		stat_fail("cannot start a process: %s", strerror(errno));
	if (!child)
		become(job, report[1], begin);
	close(report[1]);
	if (read(report[0], &error, sizeof(error)) == sizeof(error))
		fail_to_execute(job, error);
	close(report[0]);
	return child;
}

static void record_end(const struct job *job, int status)
{
	fact(STAT_FACT_WORKED, job->watched.worked);
	fact(STAT_FACT_NUMBERLESS, job->watched.numberless);
	fact(STAT_FACT_LEFT_RUNNING, group_is_populated());
	fact(STAT_FACT_STATUS, (uint64_t)status);
}

/* Starts modelling, and calibrates before the program runs. */
static void model_on(const struct job *job)
{
	uint64_t refusals = supervisor_refusals();

	tl_model_on();
	if (!job->uncalibrated)
		calibrate(job->counting, !refusals, job->calls);
	if (job->calls)
		group_trace(true);
	fact(STAT_FACT_REFUSALS, refusals);
}

/* Counts the command, or the server while its load runs, in that phase. Returns the status. */
static int count_once(const struct job *job, int phase, bool supervisor)
{
	const struct begin begin = { .supervisor = supervisor, .phase = phase };
	int status;

	if (job->load) {
		group_count(job->counting, phase);
		status = run_shell(job->load, false);
	} else {
		status = wait_for(start(job, &begin));
	}
	group_count(job->counting, PHASE_NONE);
	group_record_counts(phase);
	return status;
}

/* Counts each turn in its mode; a server, which runs already, is switched. */
static int count_turns(const struct job *job)
{
	struct supervisor_counts before, after;
	int turn, status, last = 0;
	unsigned int i;

	supervisor_read(&before);
	for (turn = 0; job->turns[turn]; turn++) {
		bool supervisor = job->turns[turn] == TURN_SUPERVISOR;

		if (job->load)
			group_switch(supervisor);
		status = count_once(job, STAT_TURN | turn << 1 | supervisor, supervisor);
		if (turn && status != last)
			stat_fail("turn %d of %s ended with status %d, the one before with %d: "
				  "there is nothing to compare", turn + 1, job->turns, status,
				  last);
		last = status;
		if (!job->load && group_is_populated())
			group_kill(); /* its daemons */
	}
	supervisor_read(&after);
	i = STAT_FACT_CALLS;
#define RECORD(way) fact(i++, after.way - before.way);
	STAT_CALLS(RECORD)
#undef RECORD
	for (i = 0; i < TL_DEMOTIONS; i++)
		fact(STAT_FACT_DEMOTIONS + i, after.demotions[i] - before.demotions[i]);
	return last;
}

/* Counts all runs and records the facts about them. */
static int count(const struct job *job)
{
	int status;

	model_on(job);
	status = job->turns ? count_turns(job) : count_once(job, PHASE_PROGRAM, false);
	if (job->load && !group_is_populated())
		stat_fail("%s ended before its load had", job->argv[0]);
	record_end(job, status);
	if (job->calls)
		group_trace(false);
	tl_model_off();
	return status;
}

/* Ends watching; the numbers are those of one run. */
static void take_watched(struct job *job)
{
	uint64_t runs = (uint64_t)(job->warm ?: 1);

	job->watched = group_watched();
	job->watched.worked /= runs;
	job->watched.numberless /= runs;
}

static int count_command(struct job *job)
{
	static const struct begin uncounted = { .quiet = true, .phase = PHASE_NONE };
	int i;

	group_watch();
	for (i = 0; i < job->warm; i++)
		wait_for(start(job, &uncounted));
	take_watched(job);
	if (group_is_populated())
		group_kill(); /* daemons of those runs */
	return count(job);
}

static void await_ready(const struct job *job, pid_t server)
{
	time_t begin = now_s();
	int status;

	while (run_shell(job->ready, true)) {
		/*
		 * A server that goes into the background and leaves its children to serve is
		 * accepted.
		 */
		if (waitpid(server, &status, WNOHANG) == server && status)
			stat_fail("%s ended with status %d before it was ready", job->argv[0],
				  shell_status(status));
		if (now_s() - begin >= job->ready_limit_s)
			stat_fail("%s was not ready after %d s: `%s` did not succeed (seconds of "
				  "the guest's own time; --ready-limit gives more)", job->argv[0],
				  job->ready_limit_s, job->ready);
		pause_ns(READY_PAUSE_NS);
	}
}

static void stop(pid_t server)
{
	long tries = TERM_LIMIT_S * (1000000000 / READY_PAUSE_NS);

	if (kill(server, SIGTERM))
		return;
	while (waitpid(server, NULL, WNOHANG) == 0 && tries--)
		pause_ns(READY_PAUSE_NS);
}

static int count_server(struct job *job)
{
	static const struct begin uncounted = { .phase = PHASE_NONE };
	pid_t server = start(job, &uncounted);
	int i, status;

	await_ready(job, server);
	group_watch();
	for (i = 0; i < job->warm; i++)
		if (run_shell(job->load, true))
			stat_fail("the load failed when it ran uncounted: `%s`", job->load);
	take_watched(job);
	status = count(job);
	stop(server);
	return status;
}

int main(int argc, char **argv)
{
	struct job job = { 0 };
	int status;

	if (argc > 0 && calibrate_is_idle(argv[0]))
		return 0;
	parse(&job, argc, argv);
	if (job.prepare)
		prepare(&job);
	find_program(&job);
	if (access(job.program, X_OK))
		fail_to_execute(&job, errno);
	group_create(job.module);
	job.counting = group_open_counting();
	status = job.load ? count_server(&job) : count_command(&job);
	if (group_is_populated())
		group_kill();
	close(job.counting);
	group_remove();
	return status;
}
