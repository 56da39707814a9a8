// SPDX-License-Identifier: GPL-2.0-only
/*
 * Puts one load after the other on the machine, each for a limited time, and says in an
 * announcement (announce.h) which one it is: the observer samples that word with all others, so
 * that each sample belongs to a load or to none.
 *
 *   os-behaviour PREPARE NAME SECONDS COMMAND [NAME SECONDS COMMAND]...
 *
 * A command is run by the shell. When it has not ended in time, or when the observer says so by a
 * line of standard input, it and all that it has started are ended; one that fails by itself fails
 * the run. PREPARE comes before all of them. Then the observer is waited for, until it has found
 * out which kernel this is.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "announce.h"
#include "workload_clock.h"
#include "measure.h"

#define NOTHING 0u		/* the setting while no load is on */
#define LOADS_MAX 16u
#define SECONDS_MAX 3600u
#define FIRST_REST_MS 2000
#define REST_MS 500		/* between two loads */
#define END_MS 3000		/* that what is asked to end may take */
#define LOOK_MS 10

static uint64_t now_ms(void)
{
	return now_ns() / NS_PER_MS;
}

/*
 * How the kernel itself accounts for its time: a witness for the observer who samples it from
 * outside.
 */
struct account {
	unsigned long long user, nice, system, idle, iowait, irq, softirq;	/* ticks */
};

static struct account account_now(void)
{
	struct account account;
	FILE *file = fopen("/proc/stat", "re");

	if (!file || fscanf(file, "cpu %llu %llu %llu %llu %llu %llu %llu", &account.user,
			    &account.nice, &account.system, &account.idle, &account.iowait,
			    &account.irq, &account.softirq) != 7)
		measure_fail("/proc/stat cannot be read");
	fclose(file);
	return account;
}

static void print_account(const char *name, struct account from, struct account to)
{
	printf("{\"accounted\": \"%s\", \"user\": %llu, \"kernel\": %llu, \"idle\": %llu}\n",
	       name, to.user + to.nice - from.user - from.nice,
	       to.system + to.irq + to.softirq - from.system - from.irq - from.softirq,
	       to.idle + to.iowait - from.idle - from.iowait);
}

static struct announcement *announce(void)
{
	struct announcement *page = mmap(NULL, ANNOUNCE_PAGE, PROT_READ | PROT_WRITE,
					 MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (page == MAP_FAILED || mlock(page, ANNOUNCE_PAGE) ||
	    madvise(page, ANNOUNCE_PAGE, MADV_DONTFORK)) /* children would have a copy to write */
		measure_fail("the announcement's page: %m");
	announce_begin(page, announce_physical(page), 0);
	return page;
}

static pid_t start(const char *command)
{
	pid_t pid = fork();

	if (pid < 0)
		measure_fail("fork: %m");
	if (!pid) {
		setpgid(0, 0);
		if (!freopen("/dev/null", "r", stdin)) /* what the observer says is not for it */
			_exit(126);
		execl("/bin/sh", "sh", "-c", command, (char *)NULL);
		_exit(127);
	}
	setpgid(pid, pid); /* both do it: neither can be too late */
	return pid;
}

/* Whether the process ended in time; sleeps until then, so that it is no load itself. */
static bool await(pid_t pid, unsigned int ms)
{
	struct pollfd ends[] = { { .events = POLLIN }, { .fd = STDIN_FILENO, .events = POLLIN } };
	bool ended;

	ends[0].fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (ends[0].fd < 0)
		measure_fail("pidfd_open: %m");
	ended = poll(ends, 2, (int)ms) > 0 && ends[0].revents;
	if (ends[1].revents)
		announce_await();	/* takes the line */
	close(ends[0].fd);
	return ended;
}

/* Returns when nothing of a load is left, before the next one begins. */
static void end_all(pid_t group)
{
	uint64_t limit = now_ms() + END_MS;

	kill(-group, SIGTERM);
	while (kill(-group, 0) == 0) {
		while (waitpid(-group, NULL, WNOHANG) > 0)
			;
		if (now_ms() > limit)
			kill(-group, SIGKILL);
		sleep_ms(LOOK_MS);
	}
}

static void run(struct announcement *page, unsigned int number, const char *name,
		unsigned int seconds, const char *command)
{
	struct account from = account_now(), to;
	uint64_t begin = now_ms(), end;
	siginfo_t info = { 0 };
	bool ended;
	pid_t pid;

	announce_next(page, number);
	pid = start(command);
	ended = await(pid, seconds * 1000);
	end = now_ms();
	announce_next(page, NOTHING);
	to = account_now();
	if (ended && waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT))
		measure_fail("waitid: %m");
	end_all(pid);
	if (ended && (info.si_code != CLD_EXITED || info.si_status))
		measure_fail("%s: the load did not end with status 0 but %d", name,
			     info.si_status);
	printf("{\"load\": \"%s\", \"number\": %u, \"ended\": %s, \"ms\": %llu}\n", name, number,
	       ended ? "true" : "false", (unsigned long long)(end - begin));
	print_account(name, from, to);
	fflush(stdout);
	sleep_ms(REST_MS);
}

static void prepare(const char *command)
{
	pid_t pid = start(command);
	int status;

	if (waitpid(pid, &status, 0) != pid || status)
		measure_fail("preparing the loads failed with wait status %#x", status);
	end_all(pid);
	sleep_ms(FIRST_REST_MS);
}

int main(int argc, char **argv)
{
	unsigned int count = (unsigned int)(argc - 2) / 3, seconds[LOADS_MAX];
	struct announcement *page;
	char **loads = argv + 2;

	if (argc < 5 || (argc - 2) % 3 || count > LOADS_MAX)
		measure_fail("usage: os-behaviour PREPARE NAME SECONDS COMMAND ...");
	for (unsigned int i = 0; i < count; i++)
		seconds[i] = (unsigned int)measure_parse_number("SECONDS", loads[1 + 3 * i],
								SECONDS_MAX);
	if (prctl(PR_SET_CHILD_SUBREAPER, 1))
		measure_fail("prctl: %m");
	page = announce();
	prepare(argv[1]);
	announce_await();
	for (unsigned int i = 0; i < count; i++) {
		run(page, i + 1, loads[3 * i], seconds[i], loads[2 + 3 * i]);
		measure_progress(i + 1, count);
	}
	announce_next(page, ANNOUNCE_OVER);
	sleep_ms(REST_MS); /* for the program that reads it */
	printf("{\"complete\": true}\n");
	return 0;
}
