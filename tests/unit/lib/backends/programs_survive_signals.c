// SPDX-License-Identifier: GPL-2.0-only
/*
 * A signal handler stops a program between two steps, and another flush goes on there: no step is
 * lost and none is made twice. A program that would never end can be stopped. One that is destroyed
 * before its end leaves open what it has opened.
 */
#include "lib_check.h"

#include <sys/mman.h>

#define ROUNDS 20000

/* A loop that writes and counts ROUNDS times. */
static void add_storm(struct tl_batch *batch, int fd, uint64_t *count, uint64_t *left)
{
	TL_ADD(batch, SYS_write, fd, "a", 1);
	TL_ADD(batch, TL_NR_INCREASE, count, 1);
	TL_ADD(batch, TL_NR_INCREASE, left, -1);
	CHECK_EQ(tl_batch_jump(batch, 2, TL_IF_POSITIVE, 0), 0);
}

static void every_step_of_a_storm_is_made_once(void)
{
	struct tl_batch *batch = batch_new(8);
	int fd = MUST(memfd_create("storm", 0));
	uint64_t count = 0, left = ROUNDS;

	on_signal(SIGALRM, count_signal, 0);
	handled = 0;
	alarm_ms(1, 1);
	add_storm(batch, fd, &count, &left);
	CHECK_EQ(tl_batch_flush_all(batch), 3);
	alarm_ms(0, 0);
	CHECK_EQ(count, ROUNDS);
	CHECK_EQ(lseek(fd, 0, SEEK_END), ROUNDS);
	CHECK(handled > 0);
	tl_batch_destroy(batch);
	close(fd);
}

static void interrupted_call_says_so_and_jumps(void)
{
	struct tl_batch *batch = batch_new(8);
	int pipes[2];
	pid_t waker;
	char byte;

	add_read_to_interrupt(batch, pipes, &byte);
	TL_ADD(batch, SYS_getuid);
	TL_ADD(batch, SYS_getppid);
	CHECK_EQ(tl_batch_jump(batch, 0, TL_IF_ERROR, 2), 0);
	waker = signal_when_asleep(SIGALRM);
	CHECK_EQ(tl_batch_flush(batch), -EINTR);
	CHECK_EXITED(child_wait(waker), 0);
	CHECK_EQ(handled, 1);
	CHECK_EQ(tl_batch_result(batch, 0), -EINTR);
	CHECK_EQ(tl_batch_at(batch), 2);
	CHECK_EQ(tl_batch_flush(batch), 3);
	CHECK_EQ(tl_batch_result(batch, 1), -ECANCELED);
	CHECK_EQ(tl_batch_result(batch, 2), getppid());
	tl_batch_destroy(batch);
	close(pipes[0]);
	close(pipes[1]);
}

static void jump_out_of_flush_repeats_nothing(void)
{
	struct tl_batch *batch = batch_new(8);
	int fd = MUST(memfd_create("once", 0)), pipes[2];
	char byte;

	MUST(pipe(pipes));
	on_signal(SIGALRM, jump_out_of_flush, SA_RESTART);	/* else the read ends */
	TL_ADD(batch, SYS_write, fd, "x", 1);
	TL_ADD(batch, SYS_read, pipes[0], &byte, 1);
	TL_ADD(batch, SYS_write | TL_RESULT(2), fd, "y", 1);
	if (!sigsetjmp(out_of_flush, 1)) {
		alarm_ms(20, 0);
		for (;;)
			tl_batch_flush(batch);
	}
	MUST(write(pipes[1], "z", 1));
	while (tl_batch_queued(batch))
		tl_batch_flush(batch);
	CHECK_EQ(lseek(fd, 0, SEEK_END), 2);
	tl_batch_destroy(batch);
	close(fd);
	close(pipes[0]);
	close(pipes[1]);
}

static void spin(void)
{
	struct tl_batch *batch = batch_new(2);
	uint64_t count = 0;

	TL_ADD(batch, TL_NR_STORE, &count, 0);
	CHECK_EQ(tl_batch_jump(batch, 0, TL_IF_ALWAYS, 0), 0);
	for (;;)
		tl_batch_flush_steps(batch, UINT64_MAX);
}

static void endless_program_can_be_killed(void)
{
	pid_t child = child_start(spin);

	sleep_ms(50);
	MUST(kill(child, SIGKILL));
	CHECK_KILLED(child_wait(child), SIGKILL);
}

static void destroyed_program_closes_nothing(void)
{
	struct tl_batch *batch = batch_new(8);
	int pipes[2], opened, closed, fd;
	pid_t waker;
	char byte;

	add_read_to_interrupt(batch, pipes, &byte);
	opened = TL_ADD(batch, SYS_dup, pipes[0]);
	TL_ADD(batch, SYS_read | TL_RESULT(0), opened, &byte, 1);
	closed = TL_ADD(batch, SYS_close | TL_RESULT(0), opened);
	waker = signal_when_asleep(SIGALRM);
	CHECK_EQ(tl_batch_flush(batch), -EINTR);
	CHECK_EXITED(child_wait(waker), 0);
	waker = signal_when_asleep(SIGALRM);
	CHECK_EQ(tl_batch_flush(batch), -EINTR);
	CHECK_EXITED(child_wait(waker), 0);
	CHECK(tl_batch_done(batch, opened));
	CHECK(!tl_batch_done(batch, closed));
	fd = (int)tl_batch_result(batch, opened);
	tl_batch_destroy(batch);
	CHECK_EQ(close(fd), 0);
	close(pipes[0]);
	close(pipes[1]);
}

int main(void)
{
	destroyed_program_closes_nothing();
	every_step_of_a_storm_is_made_once();
	interrupted_call_says_so_and_jumps();
	jump_out_of_flush_repeats_nothing();
	endless_program_can_be_killed();
	return 0;
}
