// SPDX-License-Identifier: GPL-2.0-only
/*
 * Runs the command on a machine without a launcher, and ends the machine after it.
 *
 * This file owns what the machine does when the command has ended. A command that ended otherwise
 * than by its own decision leaves a shell on the console: what it has in memory can still be saved.
 */
#define _GNU_SOURCE /* environ */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/reboot.h>
#include <sys/wait.h>
#include <unistd.h>

#include "alone.h"
#include "fail.h"

__attribute__((noreturn)) static void become(char *const *argv, char **env)
{
	setsid();
	/* The command also runs without a terminal of its own; Ctrl-C then does nothing. */
	if (ioctl(0, TIOCSCTTY, 1) < 0)
		perror("/dev/console");
	environ = env;
	execvp(argv[0], argv);
	fprintf(stderr, "trapless-init: cannot execute %s: %s\n", argv[0], strerror(errno));
	_exit(1);
}

/*
 * Returns its status as a shell says it. Process 1 also has to reap all others that end
 * meanwhile.
 */
static int run(char *const *argv, char **env)
{
	pid_t command = fork(), ended;
	int status = 0;

	if (command < 0)
		guest_fail("fork: %s", strerror(errno));
	if (!command)
		become(argv, env);
	do
		ended = wait(&status);
	while (ended != command && (ended > 0 || errno == EINTR));
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Prints through the kernel's log, which all consoles show. */
__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
	FILE *log = fopen("/dev/kmsg", "w");
	va_list args;

	if (!log)
		return;
	fputs("<2>trapless-init: ", log);
	va_start(args, format);
	vfprintf(log, format, args);
	va_end(args);
	fclose(log);
}

void alone_run(const struct guest_config *config)
{
	char *const shell[] = { "sh", NULL };
	int status = run(config->argv, config->env);

	if (status != ALONE_POWER_OFF && status != ALONE_RESTART) {
		say("%s ended with status %d; on the screen is a shell, and the machine is "
		    "switched off after it", config->argv[0], status);
		run(shell, config->env);
	}
	sync();
	reboot(status == ALONE_RESTART ? RB_AUTOBOOT : RB_POWER_OFF);
	for (;;)
		pause(); /* a machine that cannot switch itself off */
}
