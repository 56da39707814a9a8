// SPDX-License-Identifier: GPL-2.0-only
/*
 * A program of which a worker has made some steps before it left is not to be canceled: it runs
 * still, and another worker goes on with it. One that no worker has begun can be canceled. When the
 * ring is shut down, a half-made program is the requester's again, and says where it is.
 */
#include "ring.h"

static uint64_t word;
static int pipe_fd[2];
static char byte;
static struct tl_request requests[3];

static bool cancel(struct ring *ring)
{
	uint8_t state = TL_SUBMITTED;

	return __atomic_compare_exchange_n(&ring->requests[0].state, &state, TL_CANCELED, false,
					   __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

/* A worker begins the program, which makes `before` steps and then waits, and leaves it. */
static void leave_in_the_middle(struct ring *ring, unsigned int before)
{
	struct ring memory = { .requests = requests, .entries = 4 };
	struct worker worker = { .signals = true };
	unsigned int step;

	word = 0;
	for (step = 0; step < before; step++)
		ring_put(&memory, step, TL_NR_INCREASE, &word, 1);
	ring_put(&memory, step++, SYS_read, pipe_fd[0], &byte, 1);
	ring_put(&memory, step++, TL_NR_INCREASE, &word, 1);
	worker_start(&worker, ring);
	ring_queue(ring, 0, TL_NR_PROGRAM, requests, step, 10, 0);
	CHECK_EQ(ring_notify(ring, 1), 1);
	WAIT_UNTIL(ring_state(ring, 0) == TL_RUNNING, "state %u", ring_state(ring, 0));
	WAIT_UNTIL(__atomic_load_n(&word, __ATOMIC_RELAXED) == before, "word %lu", word);
	wait_asleep(worker.tid);
	CHECK_EQ(pthread_kill(worker.thread, SIGUSR1), 0);
	worker_join(&worker);
	CHECK_EQ(worker.result, -EINTR);
	CHECK_EQ(ring->requests[0].args[2], 10 - before);
	CHECK_EQ(ring->requests[0].args[4], before);
}

/* Also after a second worker has made no step of it. */
static void begun_program_goes_on(void)
{
	struct ring ring = worker_ring_open(4);
	struct worker second = { .signals = true }, last = { 0 };

	leave_in_the_middle(&ring, 1);
	CHECK_EQ(ring_state(&ring, 0), TL_RUNNING);
	CHECK(!cancel(&ring));
	worker_start(&second, &ring);
	wait_asleep(second.tid);
	CHECK_EQ(pthread_kill(second.thread, SIGUSR1), 0);
	worker_join(&second);
	CHECK(!cancel(&ring));
	worker_start(&last, &ring);
	MUST(write(pipe_fd[1], "x", 1));
	CHECK_EQ(ring_wait(&ring, 0, 0), 0);
	CHECK_DONE(&ring, 0, 2);
	CHECK_EQ(ring_stats(&ring).dropped, 0);
	workers_end(&ring, &last, 1);
	ring_close(&ring);
}

static void program_without_a_step_is_canceled(void)
{
	struct ring ring = worker_ring_open(4);
	struct worker worker = { 0 };

	leave_in_the_middle(&ring, 0);
	CHECK_EQ(ring_state(&ring, 0), TL_SUBMITTED);
	CHECK(cancel(&ring));
	worker_start(&worker, &ring);
	CHECK_EQ(ring_wait(&ring, 0, 0), 0);
	CHECK_EQ(ring_state(&ring, 0), TL_FREE);
	CHECK_EQ(word, 0);
	CHECK_EQ(ring_stats(&ring).dropped, 1);
	workers_end(&ring, &worker, 1);
	ring_close(&ring);
}

static void shut_ring_gives_it_back(void)
{
	struct ring ring = worker_ring_open(4);

	leave_in_the_middle(&ring, 1);
	CHECK_EQ(ring_state(&ring, 0), TL_RUNNING);
	CHECK_EQ(ring_ioctl(&ring, TL_IOC_EXIT), 0);
	CHECK_EQ(ring_state(&ring, 0), TL_SUBMITTED);
	CHECK_EQ(ring.requests[0].args[4], 1);
	ring_close(&ring);
}

int main(void)
{
	MUST(pipe(pipe_fd));
	on_signal(SIGUSR1, count_signal, SA_RESTART);
	begun_program_goes_on();
	program_without_a_step_is_canceled();
	shut_ring_gives_it_back();
	return 0;
}
