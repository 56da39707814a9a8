// SPDX-License-Identifier: GPL-2.0-only
/*
 * A signal handler ends a flush of a batch whose order is free, or leaves it by a jump, and nothing
 * is lost, made twice or left unsaid, though what is complete is not what was queued first.
 */
#include "lib_check.h"

#include <setjmp.h>
#include <sys/mman.h>

#define FDS 5
#define STORM_CALLS 20000
#define JUMPS 400

static volatile sig_atomic_t armed;
static sigjmp_buf out;

static void jumper(int signal)
{
	(void)signal;
	handled++;
	if (armed)
		siglongjmp(out, 1);
}

static void what_is_complete_can_be_asked(void)
{
	struct tl_batch *batch = batch_new_unordered(8);
	int pipes[2], fd = MUST(memfd_create("rest", 0));
	pid_t waker;
	char byte;

	MUST(pipe(pipes));
	on_signal(SIGALRM, count_signal, 0);
	handled = 0;
	/* To be made as read, write, getppid. */
	TL_ADD(batch, SYS_getppid);
	TL_ADD(batch, SYS_write, fd, "x", 1);
	TL_ADD(batch, SYS_read, pipes[0], &byte, 1);
	waker = signal_when_asleep(SIGALRM);
	CHECK_EQ(tl_batch_flush(batch), 1);
	CHECK_EXITED(child_wait(waker), 0);
	CHECK_EQ(handled, 1);
	CHECK_EQ(tl_batch_queued(batch), 2);
	CHECK(tl_batch_done(batch, 2) && !tl_batch_done(batch, 0) && !tl_batch_done(batch, 1));
	CHECK_EQ(tl_batch_result(batch, 2), -EINTR);
	CHECK_EQ(lseek(fd, 0, SEEK_END), 0);
	/* What comes now has a slot of its own, and is free to go first. */
	CHECK_EQ(TL_ADD(batch, SYS_read, -1, &byte, 1), 3);
	CHECK_EQ(tl_batch_flush(batch), 3);
	CHECK_EQ(tl_batch_result(batch, 0), getppid());
	CHECK_EQ(tl_batch_result(batch, 1), 1);
	CHECK_EQ(tl_batch_result(batch, 3), -EBADF);
	CHECK_EQ(lseek(fd, 0, SEEK_END), 1);
	tl_batch_destroy(batch);
	close(fd);
	close(pipes[0]);
	close(pipes[1]);
}

static void jump_out_of_flush_repeats_nothing(void)
{
	struct tl_batch *batch = batch_new_unordered(8);
	int fd = MUST(memfd_create("once", 0)), pipes[2];
	char byte;

	MUST(pipe(pipes));
	on_signal(SIGALRM, jumper, 0);
	/* To be made as read of nothing, which fails, read of the pipe, which waits, writes. */
	TL_ADD(batch, SYS_write, fd, "x", 1);
	TL_ADD(batch, SYS_read, pipes[0], &byte, 1);
	TL_ADD(batch, SYS_write, fd, "y", 1);
	TL_ADD(batch, SYS_read, -1, &byte, 1);
	armed = 1;
	if (!sigsetjmp(out, 1)) {
		alarm_ms(20, 0);
		flush_all(batch);
		FAIL("the handler did not jump");
	}
	armed = 0;
	CHECK_EQ(TL_ADD(batch, SYS_write, fd, "z", 1), 4);
	MUST(write(pipes[1], "z", 1));
	flush_all(batch);
	CHECK_EQ(lseek(fd, 0, SEEK_END), 3);
	for (unsigned int slot = 0; slot < 5; slot++)
		CHECK_EQ(tl_batch_result(batch, slot), slot == 3 ? -EBADF : 1);
	tl_batch_destroy(batch);
	close(fd);
	close(pipes[0]);
	close(pipes[1]);
}

/* At whatever instruction of the library the handler leaves it. */
static void jumps_at_any_point_lose_nothing(void)
{
	struct tl_batch *batch = batch_new_unordered(64);
	int fds[FDS];
	off_t bytes = 0;

	for (int i = 0; i < FDS; i++)
		fds[i] = MUST(memfd_create("jump", 0));
	on_signal(SIGALRM, jumper, 0);
	handled = 0;
	for (volatile int jump = 0; jump < JUMPS; jump++) {
		for (int i = 0; i < 64; i++) {
			TL_ADD(batch, SYS_write, fds[(i * 3 + jump) % FDS], "j", 1);
			if (i % 20 == 19)
				CHECK_EQ(tl_batch_barrier(batch), 0);
		}
		armed = 1;
		if (!sigsetjmp(out, 1)) {
			struct itimerval soon = { .it_value.tv_usec = 1 + jump % 40 };

			MUST(setitimer(ITIMER_REAL, &soon, NULL));
			flush_all(batch);
		}
		armed = 0;
		alarm_ms(0, 0);
		flush_all(batch);
		for (unsigned int slot = 0; slot < 64; slot++)
			CHECK_EQ(tl_batch_result(batch, slot), 1);
	}
	CHECK(handled > 0);
	for (int i = 0; i < FDS; i++) {
		bytes += lseek(fds[i], 0, SEEK_END);
		close(fds[i]);
	}
	/* A plain call that was left before its state was written looks like one not made. */
	CHECK(bytes >= 64 * JUMPS);
	if (LIB_FLAGS & TL_MODULE)
		CHECK_EQ(bytes, 64 * JUMPS);
	tl_batch_destroy(batch);
}

static void every_call_of_a_storm_is_made_once(void)
{
	struct tl_batch *batch = batch_new_unordered(64);
	int fds[FDS];

	for (int i = 0; i < FDS; i++)
		fds[i] = MUST(memfd_create("storm", 0));
	on_signal(SIGALRM, count_signal, 0);
	handled = 0;
	alarm_ms(1, 1);
	for (int i = 0; i < STORM_CALLS; i++)
		while (TL_ADD(batch, SYS_write, fds[i % FDS], "s", 1) < 0)
			flush_all(batch);
	flush_all(batch);
	alarm_ms(0, 0);
	CHECK(handled > 0);
	for (int i = 0; i < FDS; i++) {
		CHECK_EQ(lseek(fds[i], 0, SEEK_END), STORM_CALLS / FDS);
		close(fds[i]);
	}
	tl_batch_destroy(batch);
}

int main(void)
{
	what_is_complete_can_be_asked();
	jump_out_of_flush_repeats_nothing();
	jumps_at_any_point_lose_nothing();
	every_call_of_a_storm_is_made_once();
	return 0;
}
