/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A request that is interrupted goes back to the queue. If it is interrupted each time, it must not
 * come before all others for ever: what was submitted behind it gets its turn.
 */
#include "ring.h"

#define SIGNALS_MAX 20

static void nothing(int signal)
{
	(void)signal;
}

/* Interrupts the worker each time that it sleeps. */
static void interrupt_until_done(const struct ring *ring, unsigned int slot, struct worker *worker)
{
	for (int signals = 0; ring_state(ring, slot) != TL_DONE; signals++) {
		if (signals == SIGNALS_MAX)
			FAIL("slot %u waits behind an interrupted request after %d signals", slot,
			     SIGNALS_MAX);
		wait_asleep(worker->tid);
		MUST(pthread_kill(worker->thread, SIGUSR1));
		sleep_ms(5);
	}
}

int main(void)
{
	struct worker worker = { .signals = true, .again = true };
	struct ring ring = worker_ring_open(4);
	int first[2], second[2];
	sigset_t usr1;
	char byte;

	MUST(pipe(first));
	MUST(pipe(second));
	on_signal(SIGUSR1, nothing, SA_RESTART);
	worker_start(&worker, &ring);
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &usr1, NULL);
	ring_queue(&ring, 0, SYS_read, first[0], &byte, 1);
	ring_queue(&ring, 1, SYS_read, second[0], &byte, 1);
	ring_queue(&ring, 2, SYS_getpid);
	CHECK_EQ(ring_notify(&ring, 3), 3);
	interrupt_until_done(&ring, 2, &worker);
	CHECK_DONE(&ring, 2, getpid());
	CHECK(ring_state(&ring, 0) != TL_DONE && ring_state(&ring, 1) != TL_DONE);
	CHECK_EQ(write(second[1], "x", 1), 1);
	interrupt_until_done(&ring, 1, &worker);
	CHECK_DONE(&ring, 1, 1);
	CHECK(ring_state(&ring, 0) != TL_DONE);
	CHECK_EQ(write(first[1], "x", 1), 1);
	wait_done(&ring, 0);
	CHECK_DONE(&ring, 0, 1);
	workers_end(&ring, &worker, 1);
	return 0;
}
