// SPDX-License-Identifier: GPL-2.0-only
/*
 * A flush that is stopped and continued, or that a tracer interrupts and leaves, makes all its
 * calls: no handler has run, so the program has nothing to learn. After a handler it returns early.
 */
#include "check.h"

#include <sys/ptrace.h>
#include <sys/uio.h>
#include <trapless.h>

static int in[2], out[2];

/* Two calls that do not sleep are before the one that does, in either order. */
static struct tl_batch *queue(unsigned int flags, uint32_t of_program)
{
	static char byte;
	static struct iovec iovec = { .iov_base = &byte, .iov_len = 1 };
	struct tl_batch *batch;

	CHECK_EQ(tl_batch_create(&batch, 8, TL_MODULE | flags), 0);
	if (of_program)
		TL_ADD(batch, SYS_write | of_program, &out[1], "a", 1);
	else
		TL_ADD(batch, SYS_write, out[1], "a", 1);
	TL_ADD(batch, SYS_getpgid, getpid());
	TL_ADD(batch, SYS_readv, in[0], &iovec, 1);
	TL_ADD(batch, SYS_write, out[1], "b", 1);
	return batch;
}

static void check_results(struct tl_batch *batch)
{
	for (unsigned int slot = 0; slot < 4; slot++)
		CHECK_EQ(tl_batch_result(batch, slot), slot == 1 ? getpgrp() : 1);
	tl_batch_destroy(batch);
}

static void flush_all(struct tl_batch *batch)
{
	CHECK_EQ(tl_batch_flush(batch), 4);
	check_results(batch);
}

static void strict(void)
{
	flush_all(queue(0, 0));
}

static void unordered(void)
{
	flush_all(queue(TL_UNORDERED, 0));
}

static void program(void)
{
	flush_all(queue(0, TL_WORD32(0)));
}

static void with_handler(void)
{
	struct tl_batch *batch = queue(0, 0);

	on_signal(SIGUSR1, count_signal, SA_RESTART);
	CHECK_EQ(tl_batch_flush(batch), 2);
	CHECK_EQ(handled, 1);
	CHECK_EQ(tl_batch_flush(batch), 2);
	check_results(batch);
}

static void stop_and_continue(pid_t pid)
{
	int status;

	wait_asleep(pid);
	MUST(kill(pid, SIGSTOP));
	CHECK_EQ(waitpid(pid, &status, WUNTRACED), pid);
	CHECK(WIFSTOPPED(status));
	MUST(kill(pid, SIGCONT));
}

static void stop_and_trace(pid_t pid)
{
	int status;

	for (int i = 0; i < 3; i++)
		stop_and_continue(pid);
	wait_asleep(pid);
	MUST(ptrace(PTRACE_SEIZE, pid, NULL, NULL));
	MUST(ptrace(PTRACE_INTERRUPT, pid, NULL, NULL));
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFSTOPPED(status));
	MUST(ptrace(PTRACE_DETACH, pid, NULL, NULL));
}

static void be_handled(pid_t pid)
{
	wait_asleep(pid);
	MUST(kill(pid, SIGUSR1));
	sleep_ms(20);
}

static void check(void (*body)(void), void (*interrupt)(pid_t pid))
{
	pid_t pid = child_start(body);
	char bytes[4];

	interrupt(pid);
	wait_asleep(pid);
	CHECK_EQ(write(in[1], "x", 1), 1);
	CHECK_EXITED(child_wait(pid), 0);
	CHECK_EQ(read(out[0], bytes, sizeof(bytes)), 2);
	CHECK(!memcmp(bytes, "ab", 2));
}

int main(void)
{
	MUST(pipe(in));
	MUST(pipe2(out, O_NONBLOCK));
	check(strict, stop_and_trace);
	check(unordered, stop_and_trace);
	check(program, stop_and_trace);
	check(with_handler, be_handled);
	return 0;
}
