// SPDX-License-Identifier: GPL-2.0-only
/*
 * Work that the kernel gives to a worker, here by a request of io_uring that the thread began
 * before it entered, is done inside: the worker does not return, and the call that the work
 * interrupts goes on.
 */
#include "ring.h"
#include "uring.h"

#define POLLS 3
#define REQUESTS 3

static int announced[POLLS][2];

struct polling {
	struct worker worker;
	struct uring urings[POLLS];
};

static void *polling_main(void *arg)
{
	struct polling *polling = arg;

	for (unsigned int i = 0; i < POLLS; i++) {
		polling->urings[i] = uring_open();
		uring_poll(&polling->urings[i], announced[i][0]);
	}
	worker_main(&polling->worker);
	CHECK_EQ(polling->worker.result, REQUESTS);
	return NULL;
}

/* Makes work for the worker, which sleeps, and waits until that is done. */
static void interrupt(struct polling *polling, unsigned int i)
{
	const struct uring *uring = &polling->urings[i];

	wait_asleep(polling->worker.tid);
	CHECK_EQ(uring_completed(uring), 0);
	CHECK_EQ(write(announced[i][1], "x", 1), 1);
	WAIT_UNTIL(uring_completed(uring) == 1, "work %u is not done", i);
}

int main(void)
{
	struct ring ring = worker_ring_open(4);
	struct polling polling = { .worker.ring = &ring };
	struct pollfd polled = { .events = POLLIN };
	int data[2];
	char byte;

	MUST(pipe(data));
	polled.fd = data[0];
	for (unsigned int i = 0; i < POLLS; i++)
		MUST(pipe(announced[i]));
	CHECK_EQ(pthread_create(&polling.worker.thread, NULL, polling_main, &polling), 0);
	WAIT_UNTIL(ring_stats(&ring).sleeps, "the worker does not rest");
	interrupt(&polling, 0);

	ring_queue(&ring, 0, SYS_poll, &polled, 1, -1);
	CHECK_EQ(ring_notify(&ring, 1), 1);
	WAIT_UNTIL(ring_state(&ring, 0) == TL_RUNNING, "slot 0 is not taken");
	interrupt(&polling, 1);
	CHECK_EQ(write(data[1], "x", 1), 1);
	CHECK_EQ(ring_wait(&ring, 0, 0), 0);
	CHECK_DONE(&ring, 0, 1);

	/* Its call makes the work. The next one is made by the same worker: there is no other. */
	ring_queue(&ring, 1, SYS_write, announced[2][1], "x", 1);
	ring_queue(&ring, 2, SYS_read, data[0], &byte, 1);
	CHECK_EQ(ring_wait(&ring, 2, 0), 0);
	CHECK_DONE(&ring, 1, 1);
	CHECK_DONE(&ring, 2, 1);
	CHECK_EQ(uring_completed(&polling.urings[2]), 1);

	workers_end(&ring, &polling.worker, 1);
	CHECK_EQ(ring_stats(&ring).interrupted, 0);
	return 0;
}
