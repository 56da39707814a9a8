// SPDX-License-Identifier: GPL-2.0-only
/*
 * SIGKILL ends a process in supervisor mode at once, whether it calls, computes without a call,
 * sleeps in one or does all of that in many threads; what the module kept of it goes, too.
 */
#include "kill9.h"
#include "supervisor.h"

#define THREADS 4

static void wait_for_the_end(void)
{
	kill9_say_ready();
	for (;;)
		pause();
}

static void __attribute__((noreturn)) *call_for_ever(void *unused)
{
	(void)unused;
	for (;;)
		sys(SYS_getppid);
}

static void __attribute__((noreturn)) *compute_for_ever(void *unused)
{
	(void)unused;
	for (;;) {
		reach_supervisor();
		for (volatile int i = 0; i < 100000000; i++)
			;
	}
}

static void __attribute__((noreturn)) *sleep_for_ever(void *unused)
{
	static int ends[2];
	char byte;

	(void)unused;
	MUST(pipe(ends));
	for (;;)
		sys(SYS_read, ends[0], &byte, 1);
}

static void run(void *(*what)(void *))
{
	pthread_t thread;

	CHECK_EQ(raw_switch_supervisor(0), 0);
	CHECK_EQ(pthread_create(&thread, NULL, what, NULL), 0);
	wait_for_the_end();
}

static void calling(void)
{
	run(call_for_ever);
}

static void computing(void)
{
	run(compute_for_ever);
}

static void sleeping(void)
{
	run(sleep_for_ever);
}

static void all_of_it(void)
{
	pthread_t thread;

	CHECK_EQ(raw_switch_supervisor(0), 0);
	for (int i = 0; i < THREADS; i++) {
		pthread_create(&thread, NULL, call_for_ever, NULL);
		pthread_create(&thread, NULL, compute_for_ever, NULL);
		pthread_create(&thread, NULL, sleep_for_ever, NULL);
	}
	wait_for_the_end();
}

int main(void)
{
	supervisor_need();
	check_kill9_ends(calling);
	check_kill9_ends(computing);
	check_kill9_ends(sleeping);
	check_kill9_ends(all_of_it);
	CHECK_EQ(supervisor_info().processes, 0);
	return 0;
}
