// SPDX-License-Identifier: GPL-2.0-only
/*
 * See mode_run.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mode_run.h"

#define DIFFERENCE_SHOWN 60	/* bytes of output that are shown from where it differs */

static const char *const mechanisms[] = {
	[TL_MODE_USER] = "trap",
	[TL_MODE_SUPERVISOR] = "supervisor",
};

const char *run_output(const struct job *job, enum output which)
{
	static const char *const ends[OUTPUTS] = { "expected", "got", "server" };
	static char names[OUTPUTS][256];
	const char *folder = getenv("TMPDIR");

	snprintf(names[which], sizeof(names[which]), "%s/modes-%s.%s", folder ? folder : "/tmp",
		 job->call, ends[which]);
	return names[which];
}

static void __attribute__((noreturn)) become(const struct job *job, char *const *argv,
					     enum tl_mode mode, const char *output)
{
	int in = open(job->input, O_RDONLY);
	int out = open(output, O_WRONLY | O_CREAT | O_EXCL, 0644);

	if (in < 0 || out < 0 || dup2(in, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 ||
	    dup2(out, STDERR_FILENO) < 0)
		measure_fail("cannot open %s or %s: %s", job->input, output, strerror(errno));
	close(in);
	close(out);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (mode == TL_MODE_SUPERVISOR)
		device_switch(0, mode, TL_SWITCH_EXEC | TL_SWITCH_CHILDREN);
	execvp(argv[0], argv);
	_exit(127);
}

pid_t run_start(const struct job *job, char *const *argv, enum tl_mode mode, enum output output)
{
	const char *name = run_output(job, output);
	pid_t pid;

	fflush(stdout);
	unlink(name); /* here: the command must not pay for freeing its contents */
	pid = fork();
	if (pid < 0)
		measure_fail("cannot fork: %s", strerror(errno));
	if (!pid)
		become(job, argv, mode, name);
	return pid;
}

/* The whole file, with a NUL behind it. */
static char *read_file(const char *name, size_t *size)
{
	FILE *file = fopen(name, "re");
	char *data = NULL;
	long length = -1;

	if (file && !fseek(file, 0, SEEK_END))
		length = ftell(file);
	if (length >= 0)
		data = malloc((size_t)length + 1);
	if (!data || fseek(file, 0, SEEK_SET) ||
	    fread(data, 1, (size_t)length, file) != (size_t)length)
		measure_fail("cannot read %s: %s", name, strerror(errno));
	fclose(file);
	data[length] = '\0';
	*size = (size_t)length;
	return data;
}

void run_check_status(const struct job *job, const char *mode, const char *what, int wait_status)
{
	size_t size;
	char *said;

	if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == job->status)
		return;
	said = read_file(run_output(job, GOT), &size);
	measure_fail("%s in %s mode: %s did not end with status %d but with wait status %#x; it "
		     "said: %.300s", job->call, mode, what, job->status, (unsigned int)wait_status,
		     size > 300 ? said + size - 300 : said);
}

uint64_t run_compare(const struct job *job, const char *mode)
{
	size_t want_size, got_size, same = 0;
	char *want = read_file(run_output(job, EXPECTED), &want_size);
	char *got = read_file(run_output(job, GOT), &got_size);

	while (same < want_size && same < got_size && want[same] == got[same])
		same++;
	if (same != want_size || same != got_size)
		measure_fail("%s in %s mode printed something else at byte %zu of %zu: '%.*s' "
			     "instead of '%.*s'", job->call, mode, same, want_size,
			     DIFFERENCE_SHOWN, got + same, DIFFERENCE_SHOWN, want + same);
	free(want);
	free(got);
	return want_size;
}

void run_print_cost(const struct job *job, enum tl_mode mode, uint64_t cost_ns, uint64_t ops,
		    unsigned int repeat)
{
	printf("{\"kind\": \"%s\", \"call\": \"%s\", \"mechanism\": \"%s\", \"unit\": \"%s\", "
	       "\"value\": %" PRIu64 ", \"n\": 1, \"ops\": %" PRIu64 ", \"repeat\": %u}\n",
	       job->kind == MEASURE_COUNTED ? "counted" : "measured", job->call, mechanisms[mode],
	       job->kind == MEASURE_COUNTED ? "instructions" : "ns", cost_ns, ops, repeat);
}

void run_print_calls(const struct job *job, const struct calls *calls, unsigned int repeat)
{
	static const char *const causes[TL_DEMOTIONS] = {
		[TL_DEMOTED_INTERRUPT] = "interrupt",
		[TL_DEMOTED_PAGE_FAULT] = "page_fault",
		[TL_DEMOTED_EXCEPTION] = "exception",
		[TL_DEMOTED_DEBUG] = "debug",
		[TL_DEMOTED_NMI] = "nmi",
		[TL_DEMOTED_MACHINE_CHECK] = "machine_check",
		[TL_DEMOTED_COMPAT_CALL] = "compat_call",
		[TL_DEMOTED_EXIT] = "exit",
	};

	printf("{\"call\": \"%s\", \"repeat\": %u, \"calls_direct\": %" PRIu64
	       ", \"calls_worked\": %" PRIu64 ", \"calls_left\": %" PRIu64
	       ", \"calls_kernel\": %" PRIu64, job->call, repeat, calls->direct, calls->worked,
	       calls->left, calls->kernel);
	for (int i = 0; i < TL_DEMOTIONS; i++)
		printf(", \"demoted_%s\": %" PRIu64, causes[i], calls->demotions[i]);
	printf("}\n");
}
