// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Runs trapless-agent, which reads the memory of its own machine for an observer elsewhere. Peek
 * with --ssh copies it to the machine and starts it there: it removes its own file first, so that
 * nothing stays. wire.h has the messages. It knows nothing of kernels: it reads /proc/kcore by the
 * offsets that the observer gives, and samples by plans as trapless-sampler does, in a child
 * process. It ends with its input, or when the observer has said nothing for SILENCE_S.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "limits.h"
#include "sampling_loop.h"
#include "stream.h"
#include "remote/wire.h"

#define MEMORY "/proc/kcore"
#define SAMPLE_BYTES_MAX (PLAN_BYTES_MAX + (64u << 10))
#define SILENCE_S 30

/* What the child leaves for its parent. */
struct outcome {
	int status;
	char text[STREAM_MESSAGE_BYTES];
};

struct agent {
	int memory;		/* -1: it could not be opened */
	pid_t child;		/* that samples; 0: none */
	int rows;		/* of the child; -1: none */
	struct outcome *outcome;	/* shared with the child */
};

static uint8_t buffer[SAMPLE_BYTES_MAX + 1];

/* The first line of a file; empty where there is none. */
static void first_line(const char *path, char *into, int size)
{
	FILE *file = fopen(path, "re");

	if (!file || !fgets(into, size, file))
		*into = 0;
	if (file)
		fclose(file);
	into[strcspn(into, "\n")] = 0;
}

static int last_cpu(void)
{
	cpu_set_t set;
	int cpu, last = 0;

	if (!sched_getaffinity(0, sizeof(set), &set))
		for (cpu = 0; cpu < CPU_SETSIZE; cpu++)
			last = CPU_ISSET(cpu, &set) ? cpu : last;
	return last;
}

static void greet(int error)
{
	char lockdown[128], note[128], text[512];
	int length;

	first_line("/sys/kernel/security/lockdown", lockdown, sizeof(lockdown));
	first_line("/sys/kernel/vmcoreinfo", note, sizeof(note));
	length = snprintf(text, sizeof(text), "error %d\nuser %d\ncpu %d\nlockdown %s\nnote %s\n",
			  error, (int)geteuid(), last_cpu(), lockdown, note);
	say(HELLO, text, (size_t)length);
}

static void answer_read(const struct agent *agent)
{
	struct place place;
	uint32_t error = 0;
	ssize_t got;

	take(&place, sizeof(place));
	if (place.length > READ_BYTES_MAX) {
		error = EINVAL;
	} else {
		got = pread(agent->memory, buffer, place.length, (off_t)place.offset);
		if (got != (ssize_t)place.length)
			error = got < 0 ? (uint32_t)errno : EIO;
	}
	if (error)
		say(FAILED, &error, sizeof(error));
	else
		say(DATA, buffer, place.length);
}

static _Noreturn void sample(struct agent *agent, int rows, char *source_text, size_t length)
{
	struct outcome *outcome = agent->outcome;
	struct source source;
	size_t line = strcspn(source_text, "\n");

	outcome->status = STATUS_FAILED;
	source_text[line] = 0;
	if (line == length)
		snprintf(outcome->text, sizeof(outcome->text), "no plan");
	else if (!source_open(&source, source_text, outcome->text))
		outcome->status = stream_samples(&source, source_text, source_text + line + 1,
						length - line - 1, rows, outcome->text);
	_exit(0);
}

static void end_sampling(struct agent *agent)
{
	struct outcome *outcome = agent->outcome;

	close(agent->rows);
	waitpid(agent->child, NULL, 0);
	agent->rows = -1;
	agent->child = 0;
	outcome->text[sizeof(outcome->text) - 1] = 0;
	say(ENDED, outcome, sizeof(outcome->status) + strlen(outcome->text));
}

/* Begins to sample by the `length` bytes in the buffer; another plan that is sampled ends first. */
static void begin_sampling(struct agent *agent, size_t length)
{
	int rows[2];
	sigset_t stop;

	buffer[length] = 0;
	if (agent->child) {
		kill(agent->child, SIGKILL);
		end_sampling(agent);
	}
	memset(agent->outcome, 0, sizeof(*agent->outcome));
	agent->outcome->status = STATUS_FAILED;
	if (pipe2(rows, O_CLOEXEC))
		exit(STATUS_FAILED);
	sigemptyset(&stop);
	sigaddset(&stop, SIGTERM);
	sigprocmask(SIG_BLOCK, &stop, NULL);	/* until the child can end in order */
	agent->child = fork();
	if (agent->child < 0)
		exit(STATUS_FAILED);
	if (!agent->child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		run_catch_signals();
		sigprocmask(SIG_UNBLOCK, &stop, NULL);
		close(rows[0]);
		sample(agent, rows[1], (char *)buffer, length);
	}
	sigprocmask(SIG_UNBLOCK, &stop, NULL);
	close(rows[1]);
	agent->rows = rows[0];
}

static void pass_rows_on(struct agent *agent)
{
	ssize_t got = read(agent->rows, buffer, BLOCK_BYTES);

	if (got > 0)
		say(ROWS, buffer, (size_t)got);
	else if (!got || errno != EINTR)
		end_sampling(agent);
}

static void serve(struct agent *agent)
{
	struct message message;

	take(&message, sizeof(message));
	if (message.kind == READ && message.length == sizeof(struct place)) {
		answer_read(agent);
	} else if (message.kind == SAMPLE && message.length <= SAMPLE_BYTES_MAX) {
		take(buffer, message.length);
		begin_sampling(agent, message.length);
	} else if (message.kind == STOP && !message.length) {
		if (agent->child)
			kill(agent->child, SIGTERM);
	} else if (message.kind != ALIVE || message.length) {
		exit(STATUS_USAGE);
	}
}

/* The folder is the agent's own, with the agent's file and nothing else. */
static void remove_own(const char *folder)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/trapless-agent", folder);
	unlink(path);
	rmdir(folder);
}

int main(int argc, char **argv)
{
	struct agent agent = { .rows = -1 };
	int error;

	if (argc != 2) {
		fputs("usage: trapless-agent FOLDER\n\n"
		      "Answers peek's --ssh, which starts it. FOLDER/trapless-agent and FOLDER are "
		      "removed.\n", stderr);
		return STATUS_USAGE;
	}
	remove_own(argv[1]);
	signal(SIGPIPE, SIG_IGN);
	agent.memory = open(MEMORY, O_RDONLY);	/* the child reads by it, too */
	error = agent.memory < 0 ? errno : 0;
	agent.outcome = mmap(NULL, sizeof(*agent.outcome), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (agent.outcome == MAP_FAILED)
		return STATUS_FAILED;
	silence_limit_s = SILENCE_S;
	greet(error);
	for (;;) {
		struct pollfd ready[] = {
			{ .fd = STDIN_FILENO, .events = POLLIN },
			{ .fd = agent.rows, .events = POLLIN },
		};

		poll(ready, 2, -1);
		if (ready[1].revents)
			pass_rows_on(&agent);
		if (ready[0].revents)
			serve(&agent);
	}
}
