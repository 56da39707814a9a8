// SPDX-License-Identifier: GPL-2.0-only
/*
 * Process 1 of a lab VM: prepares the guest, runs one command, reports how it ended.
 *
 * This file owns the order of preparation and the life of the command. The launcher
 * (trapless/vm/lab.py) ends the VM when it has seen PHASE_DONE or PHASE_FAILED; init only waits
 * for that. Where there is no launcher, alone.c runs the command. It is a static C program, because
 * it is the first program of a root that has nothing else, because it maps device memory, and
 * because a shell would lose bytes, signals and milliseconds.
 */
#define _GNU_SOURCE /* pipe2, environ, F_SETPIPE_SZ */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/trapless.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "alone.h"
#include "channel.h"
#include "guest_config.h"
#include "fail.h"
#include "guest_setup.h"
#include "supervised_command.h"

#define CONFIG "/trapless/config"
#define STATUS_CANNOT_EXECUTE 126
#define STATUS_NOT_FOUND 127
#define STATUS_SIGNAL 128
#define PIPE_BYTES (1 << 20)

struct command {
	pid_t pid;
	int input, output, errors;	/* our ends of its pipes; -1 when closed */
	bool ended;
	int status;			/* as waitpid() says it */
};

static void make_pipe(int *mine, int *its, int my_end)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) < 0)
		guest_fail("pipe: %s", strerror(errno));
	*mine = ends[my_end];
	*its = ends[!my_end];
	/* Larger pipes mean fewer switches between the command and init; the default works too. */
	fcntl(*mine, F_SETPIPE_SZ, PIPE_BYTES);
	if (fcntl(*mine, F_SETFL, O_NONBLOCK) < 0)
		guest_fail("pipe: %s", strerror(errno));
}

/*
 * The file that a name means, looked up as execvp() does: if execvp() did it, its attempts in each
 * folder would be counted. A name that is not found stays as it is: execvp() then reports it.
 */
static const char *find_program(const char *name)
{
	static char path[PATH_MAX];
	const char *folder = getenv("PATH"), *end;
	struct stat status;

	if (strchr(name, '/'))
		return name;
	for (; folder; folder = *end ? end + 1 : NULL) {
		end = strchrnul(folder, ':');
		snprintf(path, sizeof(path), "%.*s/%s", (int)(end - folder), folder, name);
		if (!access(path, X_OK) && !stat(path, &status) && S_ISREG(status.st_mode))
			return path;
	}
	return name;
}

/* The switch has failed: the command would not run as it was asked to. */
__attribute__((noreturn)) static void fail_refused(struct supervisor_answer answer)
{
	struct channel *channel = channel_header();

	channel->refusal = answer.refusal;
	channel->switch_error = answer.error;
	guest_fail("the switch to supervisor mode failed: %s", strerror(answer.error));
}

/*
 * The command's process switches itself if that outlives its exec; else init switches it from
 * outside, when the exec has closed `report`. What the module answers comes through `report`.
 */
static void enter_supervisor(const struct guest_config *config, int report)
{
	struct supervisor_answer answer;

	if (!config->supervisor || !(config->flags & TL_SWITCH_EXEC))
		return;
	answer = supervisor_switch(0, config->flags);
	if (!answer.error)
		return;
	if (write(report, &answer, sizeof(answer)) < 0)
		perror("trapless lab: report");
	_exit(STATUS_CANNOT_EXECUTE);
}

static void await_supervisor(const struct guest_config *config, pid_t pid, int report)
{
	struct supervisor_answer answer = { 0 };

	if (read(report, &answer, sizeof(answer)) > 0)
		fail_refused(answer);
	if (!config->supervisor || config->flags & TL_SWITCH_EXEC)
		return;
	answer = supervisor_switch(pid, config->flags);
	/* A command that has ended meanwhile needs nothing more. */
	if (answer.error && answer.error != ESRCH && answer.refusal != TL_REFUSED_KERNEL_THREAD)
		fail_refused(answer);
}

__attribute__((noreturn)) static void become(const struct guest_config *config, int input,
					     int output, int errors, int report)
{
	struct rlimit unlimited = { RLIM_INFINITY, RLIM_INFINITY };
	const char *program;
	sigset_t none;

	setsid();
	if (dup2(input, 0) < 0 || dup2(output, 1) < 0 || dup2(errors, 2) < 0)
		_exit(STATUS_CANNOT_EXECUTE);
	setrlimit(RLIMIT_CORE, &unlimited);
	signal(SIGPIPE, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	environ = config->env;
	program = find_program(config->argv[0]);
	enter_supervisor(config, report);
	if (config->exec)
		execv(config->exec, config->argv);
	else
		execvp(program, config->argv);
	dprintf(2, "trapless lab: cannot execute '%s' in the guest: %s\n", config->argv[0],
		strerror(errno));
	_exit(errno == ENOENT ? STATUS_NOT_FOUND : STATUS_CANNOT_EXECUTE);
}

static void command_start(struct command *command, const struct guest_config *config)
{
	int input, output, errors, report[2];

	if (pipe2(report, O_CLOEXEC) < 0)
		guest_fail("pipe: %s", strerror(errno));
	make_pipe(&command->input, &input, 1);
	make_pipe(&command->output, &output, 0);
	make_pipe(&command->errors, &errors, 0);
	command->ended = false;
	command->pid = fork();
	if (command->pid < 0)
		guest_fail("fork: %s", strerror(errno));
	if (!command->pid)
		become(config, input, output, errors, report[1]);
	close(input);
	close(output);
	close(errors);
	close(report[1]);
	await_supervisor(config, command->pid, report[0]);
	close(report[0]);
}

static void close_end(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void reap(struct command *command, int signals)
{
	struct signalfd_siginfo info;
	pid_t pid;
	int status;

	while (read(signals, &info, sizeof(info)) > 0)
		;
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid != command->pid)
			continue;
		command->ended = true;
		command->status = status;
	}
}

/*
 * Move what the command wrote. After its end an empty pipe counts as closed, so that a daemon it
 * left behind cannot hold the VM.
 */
static void pump_output(struct ring *ring, int *fd, bool ended)
{
	ssize_t got = 1;

	if (*fd >= 0 && __atomic_load_n(&ring->consumer_closed, __ATOMIC_ACQUIRE))
		close_end(fd);
	while (*fd >= 0 && got > 0 && ring_space(ring))
		got = ring_fill(ring, *fd);
	if (got == 0 || (got < 0 && (errno != EAGAIN || ended)))
		close_end(fd);
}

static void pump_input(struct ring *ring, int *fd)
{
	ssize_t put = 1;
	/* Loaded before the bytes are counted: what was produced before it closed is seen. */
	bool closed = __atomic_load_n(&ring->producer_closed, __ATOMIC_ACQUIRE);

	while (*fd >= 0 && put > 0 && ring_waiting(ring))
		put = ring_drain(ring, *fd);
	if ((put < 0 && errno != EAGAIN) || (closed && !ring_waiting(ring)))
		close_end(fd);
}

/* Looks at everything before it waits: input may have ended already, or output lost its reader. */
static void pump(struct command *command, struct channel *channel, int signals)
{
	for (;;) {
		channel_answer();
		reap(command, signals);
		pump_input(&channel->input, &command->input);
		pump_output(&channel->output, &command->output, command->ended);
		pump_output(&channel->errors, &command->errors, command->ended);
		if (command->ended && command->output < 0 && command->errors < 0)
			return;

		struct pollfd sources[] = {
			{ .fd = signals, .events = POLLIN },
			{ .fd = channel_doorbell(), .events = POLLIN },
			{ .fd = ring_space(&channel->output) ? command->output : -1,
			  .events = POLLIN },
			{ .fd = ring_space(&channel->errors) ? command->errors : -1,
			  .events = POLLIN },
			{ .fd = ring_waiting(&channel->input) ? command->input : -1,
			  .events = POLLOUT },
		};

		if (poll(sources, sizeof(sources) / sizeof(*sources), -1) < 0 && errno != EINTR)
			guest_fail("poll: %s", strerror(errno));
	}
}

static int shell_status(int status)
{
	return WIFSIGNALED(status) ? STATUS_SIGNAL + WTERMSIG(status) : WEXITSTATUS(status);
}

static int watch_children(void)
{
	sigset_t children;
	int fd;

	sigemptyset(&children);
	sigaddset(&children, SIGCHLD);
	sigprocmask(SIG_BLOCK, &children, NULL);
	signal(SIGPIPE, SIG_IGN);
	fd = signalfd(-1, &children, SFD_NONBLOCK | SFD_CLOEXEC);
	if (fd < 0)
		guest_fail("signalfd: %s", strerror(errno));
	return fd;
}

static void note_calls(const struct guest_config *config, struct channel *channel)
{
	struct supervisor_calls calls;
	int err;

	if (!config->supervisor)
		return;
	err = supervisor_count(&calls);
	if (err)
		guest_fail("cannot count the calls in supervisor mode: %s", strerror(-err));
	channel->calls[0] = calls.direct;
	channel->calls[1] = calls.worked;
	channel->calls[2] = calls.left;
	channel->calls[3] = calls.kernel;
}

int main(void)
{
	struct command command;
	struct channel *channel;
	struct guest_config config;
	const char *bad = "";
	int err, signals, bad_config;

	setup_early();
	bad_config = guest_config_read(&config, CONFIG, &bad);
	if (!bad_config && config.alone) {
		guest_fail_stays(ALONE_READ_S);
		setup_guest(&config);
		alone_run(&config);
	}
	err = channel_open();
	if (err)
		guest_fail("no channel to the launcher: %s", strerror(-err));
	channel = channel_header();
	channel_set_phase(PHASE_INIT);
	if (bad_config)
		guest_fail(CONFIG ": %s '%s'", strerror(-bad_config), bad);
	setup_guest(&config);
	signals = watch_children();
	channel_set_phase(PHASE_RUNNING);
	command_start(&command, &config);
	pump(&command, channel, signals);
	note_calls(&config, channel);
	channel->status = shell_status(command.status);
	channel_set_phase(PHASE_DONE);
	for (;;)
		pause();
}
