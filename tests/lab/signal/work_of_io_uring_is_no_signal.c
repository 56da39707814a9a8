// SPDX-License-Identifier: GPL-2.0-only
/*
 * Work that the kernel gives to a thread interrupts its calls as a signal does (TWA_SIGNAL, by
 * which io_uring has its thread complete a request), and the program sees none of that: a batch and
 * a program go on behind the call, a call that was interrupted ends as a plain one does, and a wait
 * goes on.
 */
#include <sys/select.h>

#include "ring.h"
#include "uring.h"

#define PAUSE_MS 500

static int announced[2], data[2];

static void empty(int fd)
{
	char byte;

	CHECK_EQ(sys(SYS_read, fd, &byte, 1), 1);
}

/*
 * Starts a child that makes work for this thread when this thread sleeps, and writes what it waits
 * for when it sleeps again. The caller waits for the child.
 */
static pid_t interrupt_when_asleep(void)
{
	pid_t sleeper = getpid(), pid = MUST(fork());

	if (pid == 0) {
		wait_asleep(sleeper);
		MUST(write(announced[1], "x", 1));
		wait_asleep(sleeper);
		MUST(write(data[1], "x", 1));
		_exit(0);
	}
	return pid;
}

/* The work was done, once. */
static void check_completed(const struct uring *uring, unsigned int before)
{
	CHECK_EQ(uring_completed(uring), before + 1);
	empty(announced[0]);
}

static void batch_goes_on(struct ring *ring, struct uring *uring)
{
	unsigned int before = uring_completed(uring);

	uring_poll(uring, announced[0]);
	ring_put(ring, 0, SYS_getpid);
	ring_put(ring, 1, SYS_write, announced[1], "x", 1);
	ring_put(ring, 2, SYS_getppid);
	ring_put(ring, 3, SYS_getpid);
	CHECK_EQ(ring_batch(ring, 0, 4), 4);
	CHECK_DONE(ring, 1, 1);
	CHECK_DONE(ring, 2, getppid());
	CHECK_DONE(ring, 3, getpid());
	check_completed(uring, before);
}

/* The steps behind the call make no call, and serve what is pending all the same. */
static void program_goes_on(struct ring *ring, struct uring *uring)
{
	struct tl_program *program = (void *)(ring->requests + ring->entries);
	unsigned int before = uring_completed(uring);
	uint64_t word = 0;

	uring_poll(uring, announced[0]);
	ring_put(ring, 0, SYS_write, announced[1], "x", 1);
	ring_put(ring, 1, TL_NR_STORE, &word, 7);
	ring_put(ring, 2, TL_NR_INCREASE, &word, 1);
	*program = (struct tl_program){ .steps = 10 };
	CHECK_EQ(enter(ring, 3, TL_ENTER_PROGRAM), 3);
	CHECK_EQ(program->stopped, TL_STOPPED_END);
	CHECK_EQ(word, 8);
	check_completed(uring, before);
}

/* A call that waits for the data, as the first of a batch and behind another. */
static void call_goes_on(struct ring *ring, struct uring *uring, const struct tl_request *call)
{
	for (unsigned int slot = 0; slot < 2; slot++) {
		unsigned int before = uring_completed(uring);
		pid_t waker;

		uring_poll(uring, announced[0]);
		ring_put(ring, 0, SYS_getpid);
		ring_put(ring, slot, call->nr, call->args[0], call->args[1], call->args[2]);
		ring_put(ring, slot + 1, SYS_getppid);
		waker = interrupt_when_asleep();
		CHECK_EQ(ring_batch(ring, 0, slot + 2), slot + 2);
		CHECK_EXITED(child_wait(waker), 0);
		CHECK_DONE(ring, slot, call->result);
		CHECK_DONE(ring, slot + 1, getppid());
		check_completed(uring, before);
		if (call->nr != SYS_read)
			empty(data[0]);
	}
}

/* These three want to be restarted each by another code, and nanosleep() with the time left. */
static void calls_go_on(struct ring *ring, struct uring *uring)
{
	struct timespec pause = { .tv_nsec = PAUSE_MS * 1000000 };
	struct pollfd polled = { .fd = data[0], .events = POLLIN };
	fd_set selected;
	char byte;
	uint64_t begin;
	const struct tl_request calls[] = {
		{ .nr = SYS_read, .args = { (uint64_t)data[0], (uintptr_t)&byte, 1 }, .result = 1 },
		{ .nr = SYS_poll, .args = { (uintptr_t)&polled, 1, UINT64_MAX }, .result = 1 },
		{ .nr = SYS_select, .args = { (uint64_t)data[0] + 1, (uintptr_t)&selected },
		  .result = 1 },
		{ .nr = SYS_nanosleep, .args = { (uintptr_t)&pause } },
	};

	FD_ZERO(&selected);
	FD_SET(data[0], &selected);
	for (unsigned int i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		begin = now_ms();
		call_goes_on(ring, uring, &calls[i]);
	}
	CHECK(now_ms() - begin >= 2 * PAUSE_MS);
}

static void wait_goes_on(struct uring *uring)
{
	struct ring ring = worker_ring_open(4);
	unsigned int before = uring_completed(uring);
	struct worker worker = { 0 };
	pid_t waker;
	char byte;

	worker_start(&worker, &ring);
	uring_poll(uring, announced[0]);
	ring_queue(&ring, 0, SYS_read, data[0], &byte, 1);
	waker = interrupt_when_asleep();
	CHECK_EQ(ring_wait(&ring, 1, 0), 0);
	CHECK_EXITED(child_wait(waker), 0);
	CHECK_DONE(&ring, 0, 1);
	check_completed(uring, before);
	workers_end(&ring, &worker, 1);
}

int main(void)
{
	struct uring uring = uring_open();
	struct ring ring = ring_open(4);

	MUST(pipe(announced));
	MUST(pipe(data));
	batch_goes_on(&ring, &uring);
	program_goes_on(&ring, &uring);
	calls_go_on(&ring, &uring);
	CHECK_EQ(ring_stats(&ring).interrupted, 0);
	wait_goes_on(&uring);
	return 0;
}
