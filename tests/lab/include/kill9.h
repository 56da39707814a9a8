/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * kill9.h - measures how long SIGKILL takes to end a process that is busy in the module. The best
 * of five tries counts, or of more tries if none was quick: a module that delays the end does so in
 * every try, while a loaded host does not.
 */
#ifndef TL_TEST_KILL9_H
#define TL_TEST_KILL9_H

#include "ring.h"

#define KILL9_TRIES 5
#define KILL9_TRIES_MAX 25
#define KILL9_BOUND_MS 100

/* The child says that it is ready; the parent then waits until its first thread sleeps. */
static int kill9_ready[2];

static inline void kill9_say_ready(void)
{
	CHECK_EQ(write(kill9_ready[1], "r", 1), 1);
}

static inline bool kill9_again(int tries, uint64_t best_ms)
{
	return tries < KILL9_TRIES || (best_ms > KILL9_BOUND_MS && tries < KILL9_TRIES_MAX);
}

/* A child that does not sleep is killed this long after it was ready. */
static inline void kill9_wait_busy(pid_t pid)
{
	(void)pid;
	sleep_ms(20);
}

/* body must call kill9_say_ready() and then never return; wait() waits until it is under way. */
static inline void check_kill9_ends_after(void (*body)(void), void (*wait)(pid_t))
{
	uint64_t best_ms = UINT64_MAX;

	MUST(pipe(kill9_ready));
	for (int i = 0; kill9_again(i, best_ms); i++) {
		pid_t pid = child_start(body);
		uint64_t begin_ms, took_ms;
		char byte;

		CHECK_EQ(read(kill9_ready[0], &byte, 1), 1);
		wait(pid);
		begin_ms = now_ms();
		MUST(kill(pid, SIGKILL));
		CHECK_KILLED(child_wait(pid), SIGKILL);
		took_ms = now_ms() - begin_ms;
		if (took_ms < best_ms)
			best_ms = took_ms;
	}
	CHECK_WITHIN(best_ms, 0, KILL9_BOUND_MS);
}

static inline void check_kill9_ends(void (*body)(void))
{
	check_kill9_ends_after(body, wait_asleep);
}

#endif /* TL_TEST_KILL9_H */
