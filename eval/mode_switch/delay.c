// SPDX-License-Identifier: GPL-2.0-only
/*
 * Measures after how many of its calls a process changes its mode when another one asks for it. The
 * target makes calls without a pause and writes down the privilege level after each; or it sleeps
 * in one. The asking process looks, once the request is made, which call the target has begun. The
 * delay is the number of later calls that still end in the old mode.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "mode.h"
#include "workload.h"

#define LOG_CALLS (1u << 22)	/* calls that are remembered */
#define LOOK_CALLS 64u		/* calls after the request that are looked at */
#define PAUSE_NS 1000000	/* for the target to go on, where it has the same CPU */
#define RANDOM_SPINS 20000u
#define DELAYS_MAX 8u
#define USER_LEVEL 3

/* Shared. The target alone writes, but for `asleep`; a call's number is written before the call. */
struct log {
	volatile uint64_t begun;
	volatile bool asleep;	/* asking process: the next call shall sleep */
	int pipe[2];		/* and this wakes it */
	volatile uint8_t levels[LOG_CALLS];	/* after call n, at n % LOG_CALLS */
};

static void __attribute__((noreturn)) make_calls(struct log *log)
{
	char byte;

	for (uint64_t number = 1;; number++) {
		log->begun = number;
		if (log->asleep)
			log->asleep = read(log->pipe[0], &byte, 1) != 1;
		else
			syscall(SYS_getpid);
		log->levels[number % LOG_CALLS] = (uint8_t)mode_level();
	}
}

static void pause_a_while(void)
{
	const struct timespec pause = { .tv_nsec = PAUSE_NS };

	nanosleep(&pause, NULL);
}

static void await_calls(const struct log *log, uint64_t number)
{
	while (log->begun <= number)
		pause_a_while();
}

/* The target is anywhere in its loop if it has a CPU of its own; else the timer has stopped it. */
static void wait_at_random(void)
{
	for (volatile uint64_t spin = measure_random() % RANDOM_SPINS; spin; spin--)
		;
}

/* Calls begun after the request that still end at the old level. */
static unsigned int delay_after(const struct log *log, uint64_t begun, enum tl_mode mode)
{
	unsigned int wanted = mode == TL_MODE_SUPERVISOR ? 0 : USER_LEVEL;

	await_calls(log, begun + LOOK_CALLS + 1);
	if (log->begun - begun > LOG_CALLS / 2)
		measure_fail("the target made %lu calls before anybody looked",
			     log->begun - begun);
	for (unsigned int delay = 0; delay < LOOK_CALLS; delay++)
		if (log->levels[(begun + 1 + delay) % LOG_CALLS] == wanted)
			return delay;
	measure_fail("the target did not change to mode %d within %u calls", (int)mode,
		     LOOK_CALLS);
}

static unsigned int switch_running(const struct workload *workload, pid_t pid,
				   struct log *log, enum tl_mode mode)
{
	await_calls(log, log->begun + LOOK_CALLS);
	wait_at_random();
	mode_switch(workload->module, pid, mode, 0);
	return delay_after(log, log->begun, mode);
}

static unsigned int switch_sleeping(const struct workload *workload, pid_t pid, struct log *log,
				    enum tl_mode mode)
{
	uint64_t begun;
	char byte = 0;

	log->asleep = true;
	do {	/* until it sleeps */
		begun = log->begun;
		pause_a_while();
		pause_a_while();
	} while (log->begun != begun);
	mode_switch(workload->module, pid, mode, 0);
	if (write(log->pipe[1], &byte, 1) != 1)
		measure_fail("pipe: %s", strerror(errno));
	return delay_after(log, begun, mode);
}

static void print_rows(const char *target, enum tl_mode mode, const unsigned int *counts)
{
	for (unsigned int delay = 0; delay < DELAYS_MAX; delay++)
		if (counts[delay])
			printf("{\"delay\": %u, \"target\": \"%s\", \"to\": \"%s\", "
			       "\"switches\": %u}\n", delay, target,
			       mode == TL_MODE_SUPERVISOR ? "supervisor" : "user", counts[delay]);
}

static void count_delays(const struct workload *workload, pid_t pid, struct log *log, bool asleep)
{
	unsigned int counts[2][DELAYS_MAX] = { 0 };

	for (unsigned int i = 0; i < workload->delays; i++) {
		for (int mode = TL_MODE_SUPERVISOR; mode >= TL_MODE_USER; mode--) {
			unsigned int delay = (asleep ? switch_sleeping : switch_running)
				(workload, pid, log, (enum tl_mode)mode);

			counts[mode][delay < DELAYS_MAX ? delay : DELAYS_MAX - 1]++;
		}
		measure_progress(i + 1, workload->delays);
	}
	for (unsigned int mode = 0; mode < 2; mode++)
		print_rows(asleep ? "asleep" : "running", (enum tl_mode)mode, counts[mode]);
}

void delay_count(const struct workload *workload)
{
	struct log *log = mmap(NULL, sizeof(*log), PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	bool has_second_cpu = sysconf(_SC_NPROCESSORS_ONLN) > 1;
	pid_t pid;
	int status;

	if (log == MAP_FAILED || pipe(log->pipe))
		measure_fail("cannot make a log: %s", strerror(errno));
	fflush(stdout);
	pid = fork();
	if (pid < 0)
		measure_fail("cannot fork: %s", strerror(errno));
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		measure_pin(has_second_cpu ? 1 : 0);
		make_calls(log);
	}
	count_delays(workload, pid, log, false);
	count_delays(workload, pid, log, true);
	kill(pid, SIGKILL);
	if (waitpid(pid, &status, 0) != pid)
		measure_fail("waitpid: %s", strerror(errno));
	munmap(log, sizeof(*log));
}
