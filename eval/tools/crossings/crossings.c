// SPDX-License-Identifier: GPL-2.0-only
/*
 * Measures what a whole command costs, from exec to exit: crossings into the kernel, and
 * instructions in user space and kernel together. Runs in the lab's guest.
 *
 * The command is started as a child that stops itself just before exec. What is counted begins
 * when it is told to go on and ends when it has been reaped. Crossings and instructions come from
 * different runs, so that the probe's own work is in no count of instructions. Nothing is
 * subtracted; a command that does nothing (--call true) shows what is in every count. Timer ticks
 * are in, about one in four million instructions. It owns no command and compares no output.
 *
 * With --modes the command runs in each of these modes by turns, in random order; a row for each
 * then says what the module counted. With --kind measured it is the clock that is read.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "measure.h"
#include "mode.h"
#include "dispatch_probe.h"

#define REPEATS_MAX 1000u
#define SETTLE_NS 50000000	/* for the process that passes the output on */
#define TRIES_MAX 20u
#define OTHERS_SHARE 50	/* others may take a fiftieth of a count, and OTHERS_MIN */
#define OTHERS_MIN 150000u
#define SLEEPS_ALWAYS 2	/* when it stops itself, and when it has exited */

enum mode { TRAP, SUPERVISOR, MODES };

static const char *const mode_names[MODES] = { "trap", "supervisor" };

struct job {
	const char *call, *mechanism;	/* labels of the rows */
	const char *modes;		/* to run it in; NULL: in none but the usual */
	enum measure_kind kind;
	bool supervisor;		/* the mode of the next run */
	int module;			/* where modes are asked for */
	const char *output;		/* standard output goes there */
	unsigned int repeats, first;	/* rows carry numbers from `first` on */
	int status;			/* that the command must end with */
	char **argv;
};

/* The child: everything but exec is done before it stops. */
static void __attribute__((noreturn)) child(const struct job *job)
{
	bool apart = job->modes && strcmp(job->output, "/dev/null");
	char name[256];
	int out;

	/* A file for each mode, so that they can be compared. */
	snprintf(name, sizeof(name), "%s%s%s", job->output, apart ? "." : "",
		 apart ? job->mechanism : "");
	out = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	if (out < 0 || dup2(out, STDOUT_FILENO) < 0 || close(out))
		measure_fail("cannot write %s: %s", name, strerror(errno));
	if (job->supervisor)
		mode_switch(job->module, 0, TL_MODE_SUPERVISOR, TL_SWITCH_EXEC);
	kill(getpid(), SIGSTOP);
	execv(job->argv[0], job->argv);
	_exit(127);
}

static pid_t prepare(const struct job *job)
{
	const struct timespec settle = { .tv_nsec = SETTLE_NS };
	pid_t pid;
	int status;

	fflush(stdout);
	pid = fork();
	if (pid < 0)
		measure_fail("cannot fork: %s", strerror(errno));
	if (!pid)
		child(job);
	if (waitpid(pid, &status, WUNTRACED) != pid || !WIFSTOPPED(status))
		measure_fail("%s could not be prepared", job->call);
	/*
	 * Waits until the guest's init has passed on our rows: on the only CPU, it would be
	 * counted.
	 */
	nanosleep(&settle, NULL);
	return pid;
}

/*
 * Let the command run to its end; the instructions that took, and those (to a thousand) that the
 * scheduler says somebody else has had of them.
 */
static uint64_t finish(const struct job *job, pid_t pid, uint64_t *others)
{
	struct rusage usage;
	uint64_t begin, end, own;
	pid_t reaped;
	int status;

	begin = measure_counter();
	kill(pid, SIGCONT);
	reaped = wait4(pid, &status, 0, &usage);
	end = measure_counter();
	if (reaped != pid || !WIFEXITED(status) || WEXITSTATUS(status) != job->status)
		measure_fail("%s did not end with status %d but with wait status %#x", job->argv[0],
			     job->status, (unsigned int)status);
	if (usage.ru_nvcsw > SLEEPS_ALWAYS)
		measure_fail("%s slept %ld times: a count would hold the idle time", job->argv[0],
			     usage.ru_nvcsw - SLEEPS_ALWAYS);
	own = 1000 * (1000000u * (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
		      (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec));
	*others = end - begin > own ? end - begin - own : 0;
	return end - begin;
}

static void row(const struct job *job, const char *unit, uint64_t value, unsigned int repeat)
{
	printf("{\"kind\": \"%s\", \"call\": \"%s\", \"mechanism\": \"%s\", \"unit\": \"%s\", "
	       "\"value\": %" PRIu64 ", \"n\": 1, \"ops\": 1, \"repeat\": %u}\n",
	       job->kind == MEASURE_COUNTED ? "counted" : "measured", job->call, job->mechanism,
	       unit, value, repeat);
}

static void run_instructions(const struct job *job, unsigned int repeat)
{
	uint64_t value, others;
	unsigned int tries = 0;

	do {
		if (tries++ == TRIES_MAX)
			measure_fail("%s never had the processor to itself", job->argv[0]);
		value = finish(job, prepare(job), &others);
	} while (job->kind == MEASURE_COUNTED && others > value / OTHERS_SHARE + OTHERS_MIN);
	row(job, measure_unit(job->kind), value, repeat);
}

static void run_crossings(const struct job *job, unsigned int repeat)
{
	pid_t pid = prepare(job);
	int probe = probe_attach(pid);
	uint64_t others;

	finish(job, pid, &others);
	row(job, "crossings", probe_read(probe), repeat);
}

/* Prints the module's counts while the command runs once more; a run by traps must leave none. */
static void run_counts(const struct job *job)
{
	struct tl_process before, after;
	uint64_t stayed, left, others;

	mode_counts_ended(job->module, &before);
	finish(job, prepare(job), &others);
	mode_counts_ended(job->module, &after);
	stayed = mode_calls_stayed(&after) - mode_calls_stayed(&before);
	left = mode_calls_left(&after) - mode_calls_left(&before);
	if (job->supervisor ? !stayed : stayed || left)
		measure_fail("%s by %s: the module counts %" PRIu64 " calls that stayed in "
			     "supervisor mode and %" PRIu64 " that left it", job->call,
			     job->mechanism, stayed, left);
	printf("{\"call\": \"%s\", \"mechanism\": \"%s\", \"stayed\": %" PRIu64 ", "
	       "\"left\": %" PRIu64 ", \"demotions\": %" PRIu64 "}\n", job->call, job->mechanism,
	       stayed, left, mode_demotions(&after) - mode_demotions(&before));
}

/* One repeat: in every mode that was asked for, in random order. */
static void repeat_once(struct job *job, void (*run)(const struct job *job, unsigned int repeat),
			unsigned int repeat)
{
	unsigned int modes[MODES], count = 0;

	if (!job->modes) {
		run(job, repeat);
		return;
	}
	for (unsigned int mode = 0; mode < MODES; mode++)
		if (measure_list_has(job->modes, mode_names[mode]))
			modes[count++] = mode;
	measure_shuffle(modes, count);
	for (unsigned int i = 0; i < count; i++) {
		job->supervisor = modes[i] == SUPERVISOR;
		job->mechanism = mode_names[modes[i]];
		run(job, repeat);
		if (!repeat && run == run_instructions && job->module >= 0)
			run_counts(job);
	}
}

static struct job parse(int argc, char **argv)
{
	enum { CALL = 256, MECHANISM, OUTPUT, REPEATS, STATUS, MODE_LIST, KIND, FIRST };
	static const struct option longs[] = {
		{ "call", required_argument, NULL, CALL },
		{ "mechanism", required_argument, NULL, MECHANISM },
		{ "output", required_argument, NULL, OUTPUT },
		{ "repeats", required_argument, NULL, REPEATS },
		{ "status", required_argument, NULL, STATUS },
		{ "modes", required_argument, NULL, MODE_LIST },
		{ "kind", required_argument, NULL, KIND },
		{ "first", required_argument, NULL, FIRST },
		{ 0 },
	};
	struct job job = {
		.mechanism = "plain", .output = "/dev/null", .repeats = 1, .kind = MEASURE_COUNTED,
	};
	int option;

	while ((option = getopt_long(argc, argv, "+", longs, NULL)) != -1) {
		switch (option) {
		case CALL:
			job.call = optarg;
			break;
		case MECHANISM:
			job.mechanism = optarg;
			break;
		case OUTPUT:
			job.output = optarg;
			break;
		case REPEATS:
			job.repeats = (unsigned int)measure_parse_number("--repeats", optarg,
									 REPEATS_MAX);
			break;
		case STATUS:
			job.status = (int)measure_parse_number("--status", optarg, 255);
			break;
		case MODE_LIST:
			job.modes = optarg;
			break;
		case FIRST:
			job.first = (unsigned int)measure_parse_number("--first", optarg,
								       REPEATS_MAX);
			break;
		case KIND:
			job.kind = measure_parse_kind(optarg);
			break;
		default:
			exit(2);
		}
	}
	job.argv = argv + optind;
	if (!job.argv[0] || !job.call)
		measure_fail("usage: crossings --call NAME [--mechanism NAME] [--output FILE] "
			     "[--repeats N] [--status N] [--modes trap,supervisor] "
			     "[--kind counted|measured] [--first N] -- "
			     "/PATH/OF/COMMAND [ARGUMENT]...");
	return job;
}

int main(int argc, char **argv)
{
	struct job job = parse(argc, argv);
	const char *why = "";

	measure_calibrate(job.kind);
	measure_seed(job.first + 1);
	if (job.modes) {
		job.module = mode_open(&why);
		if (job.module < 0) {
			printf("{\"skipped\": \"supervisor\", \"reason\": \"%s\"}\n", why);
			job.modes = mode_names[TRAP];
		}
	}
	for (unsigned int i = 0; i < job.repeats; i++)
		repeat_once(&job, run_instructions, job.first + i);
	for (unsigned int i = 0; i < job.repeats && job.kind == MEASURE_COUNTED; i++)
		repeat_once(&job, run_crossings, i);
	return 0;
}
