/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Measures how long SIGKILL takes to end a process that is busy in the module. The best of five
 * tries counts, or of more tries if none was quick: a module that delays the end does so in every
 * try. A process without the module is killed by turns: its time is the machine's own share, which
 * the bound allows for.
 */
#ifndef TL_TEST_KILL9_H
#define TL_TEST_KILL9_H

#include "ring.h"

#define KILL9_TRIES 5
#define KILL9_TRIES_MAX 50
#define KILL9_BOUND_MS 100
#define KILL9_BOUND_PLAIN 3	/* and so many times what the other process takes */

/* The child says that it is ready; the parent then waits until it is well under way. */
static int kill9_ready[2];

static inline void kill9_say_ready(void)
{
	CHECK_EQ(write(kill9_ready[1], "r", 1), 1);
}

static inline void kill9_plain(void)
{
	kill9_say_ready();
	for (;;)
		pause();
}

/* What it takes, where that is less than the best so far. */
static inline uint64_t kill9_took_ms(void (*body)(void), void (*await)(pid_t pid), uint64_t best_ms)
{
	pid_t pid = child_start(body);
	uint64_t begin_ms, took_ms;
	char byte;

	CHECK_EQ(read(kill9_ready[0], &byte, 1), 1);
	await(pid);
	begin_ms = now_ms();
	MUST(kill(pid, SIGKILL));
	CHECK_KILLED(child_wait(pid), SIGKILL);
	took_ms = now_ms() - begin_ms;
	return took_ms < best_ms ? took_ms : best_ms;
}

static inline void check_kill9_ends_after(void (*body)(void), void (*await)(pid_t pid))
{
	uint64_t best_ms = UINT64_MAX, plain_ms = UINT64_MAX, bound_ms = 0;

	MUST(pipe(kill9_ready));
	for (int i = 0; i < KILL9_TRIES || (best_ms > bound_ms && i < KILL9_TRIES_MAX); i++) {
		plain_ms = kill9_took_ms(kill9_plain, wait_asleep, plain_ms);
		best_ms = kill9_took_ms(body, await, best_ms);
		bound_ms = KILL9_BOUND_MS + KILL9_BOUND_PLAIN * plain_ms;
	}
	CHECK_WITHIN(best_ms, 0, bound_ms);
}

/* A child that does not sleep is killed this long after it was ready. */
static inline void kill9_wait_busy(pid_t pid)
{
	(void)pid;
	sleep_ms(20);
}

/* body must call kill9_say_ready() and then block for ever. */
static inline void check_kill9_ends(void (*body)(void))
{
	check_kill9_ends_after(body, wait_asleep);
}

#endif /* TL_TEST_KILL9_H */
