/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The attack: a process is switched while all of its threads sleep. They change at their next call,
 * which may come late. Until then a process of the same user attaches to one of them, or opens
 * their memory, and may write to it once it runs at level 0. So the memory is closed when the
 * process is switched. Another process with the same memory is closed with it, and traced before,
 * it is a reason to refuse. Switched back asleep, it is open at once, too; and once the last thread
 * has left the mode, though another sleeps that never was in it.
 */
#include <pthread.h>
#include <sched.h>

#include "stranger.h"

enum { SIBLING = 1, SHARER };

static int wake[2], bystanders_wake[2];

static volatile struct {
	int bystander;			/* a thread or process with the same memory */
	int asked;
	unsigned int levels[2];		/* of the thread that slept, and of one it makes */
} *board;

static int stand_by(void *unused)
{
	char byte;

	(void)unused;
	board->bystander = (int)sys(SYS_gettid);
	sys(SYS_read, bystanders_wake[0], &byte, 1);
	board->bystander = 0;
	return 0;
}

static void *sibling(void *unused)
{
	stand_by(unused);
	return NULL;
}

static void *newcomer(void *unused)
{
	board->levels[1] = level_reached();
	return unused;
}

static void target(int with)
{
	static char stack[1 << 14] __attribute__((aligned(16)));
	pthread_t thread;
	char byte;

	become_stranger();
	if (with == SIBLING)
		CHECK_EQ(pthread_create(&thread, NULL, sibling, NULL), 0);
	else
		MUST(clone(stand_by, stack + sizeof(stack), CLONE_VM | SIGCHLD, NULL));
	for (;;) {
		CHECK_EQ(sys(SYS_read, wake[0], &byte, 1), 1);
		CHECK_EQ(pthread_create(&thread, NULL, newcomer, NULL), 0);
		board->levels[0] = level_reached();
		CHECK_EQ(pthread_join(thread, NULL), 0);
		board->asked = 0;
	}
}

static void target_with_sibling(void)
{
	target(SIBLING);
}

static void target_with_sharer(void)
{
	target(SHARER);
}

static void wake_up(unsigned int level)
{
	board->asked = 1;
	CHECK_EQ(write(wake[1], "x", 1), 1);
	WAIT_UNTIL(board->asked == 0, "the sleeper does not answer after %d ms", WAIT_MS);
	CHECK_EQ(board->levels[0], level);
	CHECK_EQ(board->levels[1], level);
}

static void check(void (*function)(void))
{
	pid_t pid;

	pid = child_start(function);
	WAIT_UNTIL(board->bystander != 0, "no bystander after %d ms", WAIT_MS);
	wait_asleep(pid);
	wait_asleep(board->bystander);
	CHECK_EQ(attack_as_stranger(board->bystander), 0);
	check_traced_is_refused(pid, board->bystander);
	wait_asleep(board->bystander);
	CHECK_EQ(switch_mode(pid, TL_MODE_SUPERVISOR, TL_SWITCH_ANY_USER), 0);
	CHECK_EQ(attack_as_stranger(board->bystander), -1);
	CHECK_EQ(raw_switch_user(pid), 0);
	CHECK_EQ(attack_as_stranger(board->bystander), 0);
	wait_asleep(board->bystander);
	CHECK_EQ(switch_mode(pid, TL_MODE_SUPERVISOR, TL_SWITCH_ANY_USER), 0);
	CHECK_EQ(attack_as_stranger(board->bystander), -1);

	wake_up(0);
	CHECK_EQ(attack_as_stranger(board->bystander), -1);
	CHECK_EQ(raw_switch_user(pid), 0);
	CHECK_EQ(attack_as_stranger(board->bystander), -1);
	wake_up(3);
	CHECK_EQ(attack_as_stranger(board->bystander), 0);
	CHECK_EQ(write(bystanders_wake[1], "x", 1), 1);
	WAIT_UNTIL(board->bystander == 0, "the bystander goes on after %d ms", WAIT_MS);
	MUST(kill(pid, SIGKILL));
	child_wait(pid);
}

int main(void)
{
	supervisor_need();
	MUST(pipe(wake));
	MUST(pipe(bystanders_wake));
	board = shared_memory(sizeof(*board));
	check(target_with_sibling);
	check(target_with_sharer);
	return 0;
}
