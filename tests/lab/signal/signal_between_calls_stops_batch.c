// SPDX-License-Identifier: GPL-2.0-only
/*
 * A signal that arrives while the thread waits for its CPU between two calls stops the batch before
 * the next one. The calls write to a pipe. A thread of real-time priority takes the CPU from the
 * batch, counts what was written, and sends the signal: mostly between two calls, and sometimes
 * within one, which then ends. So not every round has no further call, but some have.
 */
#include <sched.h>
#include <sys/ioctl.h>

#include "ring.h"

#define CALLS 4096
#define ROUNDS_MAX 200
#define PRIORITY 50
#define PERIODS 30
#define PERIOD_NS 100000	/* times 1 to PERIODS: which fits a batch depends on the machine */

static int ends[2];
static pid_t maker;
static volatile bool ready, begun, over;
static volatile int seen;
static long period_ns;

static int written(void)
{
	int bytes = 0;

	MUST(ioctl(ends[0], FIONREAD, &bytes));
	return bytes;
}

static void *send_amid(void *unused)
{
	const struct sched_param priority = { .sched_priority = PRIORITY };
	const struct timespec period = { .tv_nsec = period_ns };

	(void)unused;
	MUST(sched_setscheduler(0, SCHED_FIFO, &priority));
	ready = true;
	while (!over && !seen) {
		nanosleep(&period, NULL);
		seen = begun ? written() : 0;
	}
	if (seen)
		sys(SYS_tgkill, getpid(), maker, SIGUSR1);
	return NULL;
}

/* The number of calls made after the signal; -1 if it came to no call in the middle. */
static int further_calls(struct ring *ring)
{
	const char byte = 0;
	pthread_t sender;
	int further;

	MUST(pipe(ends));
	MUST(fcntl(ends[1], F_SETPIPE_SZ, CALLS * 4));
	for (unsigned int slot = 0; slot < CALLS; slot++)
		ring_put(ring, slot, SYS_write, ends[1], &byte, 1);
	seen = 0;
	ready = over = false;
	CHECK_EQ(pthread_create(&sender, NULL, send_amid, NULL), 0);
	WAIT_UNTIL(ready, "no thread after %d ms", WAIT_MS);
	begun = true;
	CHECK(ring_batch(ring, 0, CALLS) > 0);
	over = true;
	begun = false;
	CHECK_EQ(pthread_join(sender, NULL), 0);
	further = seen && written() < CALLS ? written() - seen : -1;
	close(ends[0]);
	close(ends[1]);
	return further;
}

int main(void)
{
	struct ring ring = ring_open(CALLS);
	int amid = 0;
	cpu_set_t cpu;

	CPU_ZERO(&cpu);
	CPU_SET(0, &cpu);
	MUST(sched_setaffinity(0, sizeof(cpu), &cpu));
	on_signal(SIGUSR1, count_signal, SA_RESTART);
	maker = (pid_t)sys(SYS_gettid);
	for (int round = 0; round < ROUNDS_MAX; round++) {
		int further;

		period_ns = (1 + round % PERIODS) * PERIOD_NS;
		further = further_calls(&ring);
		CHECK(further <= 1);
		amid += further >= 0;
		if (!further)
			return 0;
	}
	if (!amid)
		SKIP("no signal came amid a batch in %d rounds", ROUNDS_MAX);
	FAIL("a call was made after the signal in each of %d rounds", amid);
}
