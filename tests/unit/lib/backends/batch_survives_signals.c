// SPDX-License-Identifier: GPL-2.0-only
/*
 * A signal handler ends a flush early and nothing is lost, made twice or left unsaid: the rest
 * stays queued, and an interrupted call says so. Destroying the batch drops the rest.
 */
#include "lib_check.h"

#include <sys/mman.h>

#define STORM_CALLS 20000

static void interrupted_call_says_so(void)
{
	struct tl_batch *batch = batch_new(8);
	int pipes[2];
	pid_t waker;
	char byte;

	add_read_to_interrupt(batch, pipes, &byte);
	TL_ADD(batch, SYS_getppid);
	waker = signal_when_asleep(SIGALRM);
	CHECK_EQ(tl_batch_flush(batch), 1);
	CHECK_EXITED(child_wait(waker), 0);
	CHECK_EQ(handled, 1);
	CHECK_EQ(tl_batch_result(batch, 0), -EINTR);
	CHECK_EQ(tl_batch_queued(batch), 1);
	CHECK_EQ(tl_batch_flush(batch), 1);
	CHECK_EQ(tl_batch_result(batch, 1), getppid());
	tl_batch_destroy(batch);
	close(pipes[0]);
	close(pipes[1]);
}

static void flush_of_all_goes_on_after_a_handler(unsigned int flags)
{
	struct tl_batch *batch = batch_new_flags(8, flags);
	int pipes[2];
	pid_t waker;
	char byte;

	add_read_to_interrupt(batch, pipes, &byte);
	TL_ADD(batch, SYS_getppid);
	TL_ADD(batch, SYS_close, -1);
	waker = signal_when_asleep(SIGALRM);
	CHECK_EQ(tl_batch_flush_all(batch), 3);
	CHECK_EXITED(child_wait(waker), 0);
	CHECK_EQ(handled, 1);
	CHECK_EQ(tl_batch_queued(batch), 0);
	CHECK_EQ(tl_batch_result(batch, 0), -EINTR);
	CHECK_EQ(tl_batch_result(batch, 1), getppid());
	CHECK_EQ(tl_batch_result(batch, 2), -EBADF);
	CHECK_EQ(tl_batch_flush_all(batch), 0);
	tl_batch_destroy(batch);
	close(pipes[0]);
	close(pipes[1]);
}

static void destroyed_batch_makes_no_call(unsigned int flags)
{
	struct tl_batch *batch = batch_new_flags(8, flags);
	int fd = MUST(memfd_create("dropped", 0)), pipes[2];
	pid_t waker;
	char byte;

	add_read_to_interrupt(batch, pipes, &byte);
	CHECK_EQ(tl_batch_barrier(batch), 0);
	TL_ADD(batch, SYS_write, fd, "x", 1);
	waker = signal_when_asleep(SIGALRM);
	CHECK_EQ(tl_batch_flush(batch), 1);
	CHECK_EXITED(child_wait(waker), 0);
	CHECK_EQ(tl_batch_queued(batch), 1);
	tl_batch_destroy(batch);
	CHECK_EQ(lseek(fd, 0, SEEK_END), 0);
	close(fd);
	close(pipes[0]);
	close(pipes[1]);
}

static int pipe_to_fill;

static void writer(int signal)
{
	(void)signal;
	handled++;
	MUST(write(pipe_to_fill, "x", 1));
}

static void restarted_call_goes_on(void)
{
	struct tl_batch *batch = batch_new(8);
	int pipes[2];
	char byte = 0;
	pid_t waker;

	MUST(pipe(pipes));
	pipe_to_fill = pipes[1];
	on_signal(SIGALRM, writer, SA_RESTART);
	handled = 0;
	TL_ADD(batch, SYS_getppid);
	TL_ADD(batch, SYS_read, pipes[0], &byte, 1);
	waker = signal_when_asleep(SIGALRM);
	flush_all(batch);
	CHECK_EXITED(child_wait(waker), 0);
	CHECK_EQ(handled, 1);
	CHECK_EQ(tl_batch_result(batch, 1), 1);
	CHECK_EQ(byte, 'x');
	tl_batch_destroy(batch);
	close(pipes[0]);
	close(pipes[1]);
}

static void every_call_of_a_storm_is_made_once(void)
{
	struct tl_batch *batch = batch_new(64);
	int fd = MUST(memfd_create("storm", 0));

	on_signal(SIGALRM, count_signal, 0);
	handled = 0;
	alarm_ms(1, 1);
	for (int i = 0; i < STORM_CALLS; i++)
		while (TL_ADD(batch, SYS_write, fd, &(char){ 'a' }, 1) < 0)
			flush_all(batch);
	flush_all(batch);
	alarm_ms(0, 0);
	CHECK_EQ(lseek(fd, 0, SEEK_END), STORM_CALLS);
	CHECK(handled > 0);
	tl_batch_destroy(batch);
	close(fd);
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
	TL_ADD(batch, SYS_write, fd, "y", 1);
	if (!sigsetjmp(out_of_flush, 1)) {
		alarm_ms(20, 0);
		flush_all(batch);
		FAIL("the handler did not jump");
	}
	MUST(write(pipes[1], "z", 1));
	flush_all(batch);
	CHECK_EQ(lseek(fd, 0, SEEK_END), 2);
	CHECK_EQ(tl_batch_result(batch, 0), 1);
	CHECK_EQ(tl_batch_result(batch, 1), 1);
	CHECK_EQ(tl_batch_result(batch, 2), 1);
	tl_batch_destroy(batch);
	close(fd);
	close(pipes[0]);
	close(pipes[1]);
}

static int cancelled_pipe[2];
static volatile int cancelled_reads;

static void *flush_and_end(void *arg)
{
	struct tl_batch *batch = batch_new(8);
	char text[4];

	(void)arg;
	TL_ADD(batch, SYS_read, cancelled_pipe[0], text, 1);
	TL_ADD(batch, SYS_read, cancelled_pipe[0], text, 3);
	flush_all(batch);
	cancelled_reads = (int)(tl_batch_result(batch, 0) + tl_batch_result(batch, 1));
	tl_batch_destroy(batch);
	pause();
	return NULL;
}

static void cancelled_thread_ends_behind_its_flush(void)
{
	pthread_t thread;
	void *end;

	MUST(pipe(cancelled_pipe));
	CHECK_EQ(pthread_create(&thread, NULL, flush_and_end, NULL), 0);
	sleep_ms(20);
	CHECK_EQ(pthread_cancel(thread), 0);
	sleep_ms(20);
	CHECK_EQ(pthread_tryjoin_np(thread, &end), EBUSY);
	MUST(write(cancelled_pipe[1], "four", 4));
	CHECK_EQ(pthread_join(thread, &end), 0);
	CHECK(end == PTHREAD_CANCELED);
	CHECK_EQ(cancelled_reads, 4);
	close(cancelled_pipe[0]);
	close(cancelled_pipe[1]);
}

int main(void)
{
	cancelled_thread_ends_behind_its_flush();
	jump_out_of_flush_repeats_nothing();
	interrupted_call_says_so();
	flush_of_all_goes_on_after_a_handler(0);
	flush_of_all_goes_on_after_a_handler(TL_UNORDERED);
	destroyed_batch_makes_no_call(0);
	destroyed_batch_makes_no_call(TL_UNORDERED);
	restarted_call_goes_on();
	every_call_of_a_storm_is_made_once();
	return 0;
}
