// SPDX-License-Identifier: GPL-2.0-only
/*
 * A switch from outside takes effect within one call of the target: of the calls that begin after
 * the request has returned, at most the first still returns in the old mode. A target that sleeps
 * in a call is switched when the call returns, and no sooner is any of it disturbed.
 */
#include "supervisor.h"

#define ROUNDS 200
#define LOOKS 4
#define OLD_CALLS_MAX 1		/* the bound of the contract */

struct board {
	volatile uint32_t wanted;	/* privilege level, once the request has returned */
	volatile uint32_t round;
	volatile uint32_t answered;	/* the round that the target has seen and measured */
	volatile uint32_t late;		/* its calls that still returned at the other level */
};

static struct board *board;
static int pipe_ends[2];

/* Calls all the time; once the request is known to be made, counts. */
static void target(void)
{
	while (board->round <= ROUNDS) {
		uint32_t late = 0;

		sys(SYS_getppid);
		if (board->answered == board->round)
			continue;
		do
			sys(SYS_getppid);
		while (cpl() != board->wanted && ++late < 1000);
		board->late = late;
		board->answered = board->round;
	}
}

static void switch_and_measure(pid_t pid, enum tl_mode mode)
{
	CHECK_EQ(switch_mode(pid, mode, 0), 0);
	board->wanted = mode == TL_MODE_SUPERVISOR ? 0 : 3;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	board->round++;
	while (board->answered != board->round)
		sched_yield();
	/* An interrupt may take one more call; it cannot do so in round after round. */
	if (board->late > OLD_CALLS_MAX)
		CHECK_WITHIN(board->late, 0, OLD_CALLS_MAX + 1);
}

static void target_asleep(void)
{
	unsigned int level = 3;
	char byte;

	CHECK_EQ(sys(SYS_read, pipe_ends[0], &byte, 1), 1);
	/* An interrupt may come before the look at the level; not so in call after call. */
	for (int i = 0; i < LOOKS && level; i++) {
		sys(SYS_getppid);
		level = cpl();
	}
	board->wanted = level;
	CHECK_EQ(sys(SYS_read, pipe_ends[0], &byte, 1), 1);
}

static void check_asleep(void)
{
	struct tl_process process;
	pid_t pid = child_start(target_asleep);

	wait_asleep(pid);
	CHECK_EQ(raw_switch_supervisor(pid), 0);
	wait_asleep(pid);
	CHECK(process_find(pid, &process));
	CHECK_EQ(process.mode, TL_MODE_SUPERVISOR);
	board->wanted = 7;
	CHECK_EQ(write(pipe_ends[1], "x", 1), 1);
	while (board->wanted == 7)
		sched_yield();
	CHECK_EQ(board->wanted, 0);
	wait_asleep(pid);
	process = process_counts(pid);
	CHECK_EQ(process.threads, 1);
	CHECK_EQ(process.supervisor, 1);
	CHECK_EQ(write(pipe_ends[1], "x", 1), 1);
	CHECK_EXITED(child_wait(pid), 0);
}

int main(void)
{
	uint32_t late = 0;
	pid_t pid;

	supervisor_need();
	MUST(pipe(pipe_ends));
	board = shared_memory(sizeof(*board));
	pid = child_start(target);
	for (int round = 0; round < ROUNDS; round += 2) {
		switch_and_measure(pid, TL_MODE_SUPERVISOR);
		late += board->late > OLD_CALLS_MAX;
		switch_and_measure(pid, TL_MODE_USER);
		late += board->late > OLD_CALLS_MAX;
	}
	board->round++;
	CHECK_EXITED(child_wait(pid), 0);
	CHECK_WITHIN(late, 0, ROUNDS / 20);
	check_asleep();
	return 0;
}
