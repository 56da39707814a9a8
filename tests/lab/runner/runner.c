// SPDX-License-Identifier: GPL-2.0-only
/*
 * One test, one process: starts it in a session and a directory of its own, collects what it
 * prints, ends it and all it left behind at its time limit, brings CPUs back that it left offline,
 * and gathers what the kernel logged meanwhile. It owns the JSON lines; it does not know what a
 * failure is.
 */
#include "runner.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define OUTPUT_BYTES 16384	/* kept of what a test prints */
#define LOG_BYTES 65536		/* kept of what the kernel logs during one test */
#define RECORD_BYTES 8192	/* longest record of /dev/kmsg */
#define KILL_MS 120000	/* a killed test takes so long to disappear, at most */
#define RELEASE_MS 120000	/* the module stays in use so long after its last user, at most */
#define ONLINE_MS 120000	/* a CPU refuses so long to come back, at most */

struct text {
	size_t length;
	size_t size;
	char *bytes;
};

static long now_ms(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static void pause_ms(long ms)
{
	nanosleep(&(struct timespec){ .tv_nsec = ms * 1000000 }, NULL);
}

/* What does not fit is dropped: the beginning tells most. */
static void text_append(struct text *text, const char *bytes, size_t n)
{
	if (n > text->size - text->length)
		n = text->size - text->length;
	memcpy(text->bytes + text->length, bytes, n);
	text->length += n;
}

static void print_json(const char *key, const struct text *text)
{
	printf(", \"%s\": \"", key);
	for (size_t i = 0; i < text->length; i++) {
		unsigned char byte = (unsigned char)text->bytes[i];

		if (byte == '"' || byte == '\\')
			printf("\\%c", byte);
		else if (byte < 32 || byte > 126)
			printf("\\u%04x", byte);
		else
			putchar(byte);
	}
	putchar('"');
}

int runner_init(struct runner *runner)
{
	/* Orphans of a test come to us, so that they can be ended with it. */
	if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0) {
		perror("labtests: PR_SET_CHILD_SUBREAPER");
		return -1;
	}
	runner->kernel_log = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (runner->kernel_log < 0) {
		perror("labtests: /dev/kmsg");
		return -1;
	}
	lseek(runner->kernel_log, 0, SEEK_END);
	return 0;
}

/* A record is `priority,sequence,time,flags;text\n` and lines of key=value; the text is kept. */
static void log_collect(struct runner *runner, struct text *log)
{
	char record[RECORD_BYTES];
	ssize_t n;

	while ((n = read(runner->kernel_log, record, sizeof(record) - 1)) > 0 || errno == EPIPE) {
		char *text, *end;

		if (n <= 0)
			continue;	/* EPIPE: records were overwritten before they were read */
		record[n] = '\0';
		text = strchr(record, ';');
		if (!text)
			continue;
		end = strchr(text, '\n');
		text_append(log, text + 1, end ? (size_t)(end - text) : strlen(text + 1));
	}
}

static void child_exec(const char *name, int output)
{
	char directory[256];

	setsid();
	dup2(output, STDOUT_FILENO);
	dup2(output, STDERR_FILENO);
	snprintf(directory, sizeof(directory), "/tmp/%s", name);
	if ((mkdir(directory, 0777) < 0 && errno != EEXIST) || chdir(directory) < 0) {
		perror(directory);
		_exit(1);
	}
	execl("/proc/self/exe", name, (char *)NULL);
	perror("/proc/self/exe");
	_exit(1);
}

/* Where each thread of a stuck test is, for whoever must find out why. */
static void describe_stuck(pid_t pid, struct text *output)
{
	char path[64 + 256], stack[4096];
	struct dirent *entry;
	DIR *tasks;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	tasks = opendir(path);
	while (tasks && (entry = readdir(tasks))) {
		ssize_t n;
		int fd;

		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/proc/%d/task/%s/stack", (int)pid, entry->d_name);
		fd = open(path, O_RDONLY);
		if (fd < 0)
			continue;
		text_append(output, "stuck thread:\n", 14);
		n = read(fd, stack, sizeof(stack));
		if (n > 0)
			text_append(output, stack, (size_t)n);
		close(fd);
	}
	if (tasks)
		closedir(tasks);
}

static void output_collect(int fd, struct text *output)
{
	char bytes[4096];
	ssize_t n;

	while ((n = read(fd, bytes, sizeof(bytes))) > 0)
		text_append(output, bytes, (size_t)n);
}

/* Waits until the test has ended or its time is up; true when it ended. */
static bool wait_end(pid_t pid, int output_fd, long deadline_ms, struct text *output, int *status)
{
	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	struct pollfd polls[2] = {
		{ .fd = pidfd, .events = POLLIN },
		{ .fd = output_fd, .events = POLLIN },
	};
	bool ended = false;

	while (!ended) {
		long left_ms = deadline_ms - now_ms();

		if (left_ms <= 0)
			break;
		poll(polls, 2, (int)left_ms);
		if (polls[1].revents & POLLIN)
			output_collect(output_fd, output);
		else if (polls[1].revents & POLLHUP)
			polls[1].fd = -1;
		ended = waitpid(pid, status, WNOHANG) == pid;
	}
	output_collect(output_fd, output);
	close(pidfd);
	return ended;
}

/* Ends what the test left behind, orphans included. False: something cannot be killed. */
static bool end_all(void)
{
	long deadline_ms = now_ms() + KILL_MS;
	char path[64], children[4096];

	snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
	while (now_ms() < deadline_ms) {
		int fd = open(path, O_RDONLY);
		ssize_t n = fd < 0 ? 0 : read(fd, children, sizeof(children) - 1);
		pid_t pid;

		if (fd >= 0)
			close(fd);
		children[n > 0 ? n : 0] = '\0';
		for (char *next = children, *end; (pid = (pid_t)strtol(next, &end, 10)); next = end)
			kill(pid, SIGKILL);
		while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
			;
		if (pid < 0)
			return true;
		pause_ms(2);
	}
	return false;
}

/* The module's users once the test is gone: anything but 0 is a leak. -1: no such module. */
static int module_users(void)
{
	long deadline_ms = now_ms() + RELEASE_MS;
	int users = -1;

	do {
		char text[32] = "";
		int fd = open("/sys/module/trapless/refcnt", O_RDONLY);

		if (fd < 0)
			return -1;
		if (read(fd, text, sizeof(text) - 1) > 0)
			users = atoi(text);
		close(fd);
		if (users == 0)
			break;
		pause_ms(5);
	} while (now_ms() < deadline_ms);
	return users;
}

/* Whether the CPU was offline; then it is online again, unless it refuses for ONLINE_MS. */
static bool cpu_bring_back(const char *path)
{
	long deadline_ms = now_ms() + ONLINE_MS;
	char state = '1';
	int fd = open(path, O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return false;
	if (read(fd, &state, 1) == 1 && state == '0')
		while (pwrite(fd, "1", 1, 0) < 0 && now_ms() < deadline_ms)
			pause_ms(20);
	close(fd);
	return state == '0';
}

/* For the tests to come. How many a test has left offline. */
static int cpus_bring_back(void)
{
	long configured = sysconf(_SC_NPROCESSORS_CONF);
	int offline = 0;

	for (long cpu = 0; cpu < configured; cpu++) {
		char path[64];

		snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%ld/online", cpu);
		offline += cpu_bring_back(path);
	}
	return offline;
}

void runner_run(struct runner *runner, const char *name, unsigned int limit_s)
{
	static char output_bytes[OUTPUT_BYTES], log_bytes[LOG_BYTES];
	struct text output = { .size = sizeof(output_bytes), .bytes = output_bytes };
	struct text log = { .size = sizeof(log_bytes), .bytes = log_bytes };
	const char *end = "exit";
	int pipe_fd[2], status = 0, users, offline;
	long begin_ms = now_ms(), end_ms;
	pid_t pid;

	printf("{\"begin\": \"%s\"}\n", name);
	fflush(stdout);
	if (pipe2(pipe_fd, O_CLOEXEC) < 0 || fcntl(pipe_fd[0], F_SETFL, O_NONBLOCK) < 0) {
		perror("labtests: pipe");
		exit(1);
	}
	pid = fork();
	if (pid == 0)
		child_exec(name, pipe_fd[1]);
	close(pipe_fd[1]);
	if (!wait_end(pid, pipe_fd[0], begin_ms + limit_s * 1000L, &output, &status)) {
		describe_stuck(pid, &output);
		kill(pid, SIGKILL);
		end = "timeout";
	} else if (WIFSIGNALED(status)) {
		end = "signal";
	}
	end_ms = now_ms();
	if (!end_all())
		end = "unkillable";
	users = module_users();
	offline = cpus_bring_back();
	close(pipe_fd[0]);
	log_collect(runner, &log);
	printf("{\"test\": \"%s\", \"end\": \"%s\", \"code\": %d, \"ms\": %ld, \"in_use\": %d, "
	       "\"cpus_offline\": %d", name, end,
	       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), end_ms - begin_ms,
	       users, offline);
	print_json("output", &output);
	print_json("kernel", &log);
	printf("}\n");
	fflush(stdout);
}
