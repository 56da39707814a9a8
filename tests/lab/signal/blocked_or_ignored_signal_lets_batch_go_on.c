// SPDX-License-Identifier: GPL-2.0-only
/* A signal that the thread blocks or ignores does not end a batch. */
#include "ring.h"

static void batch_that_signals(struct ring *ring, int signal)
{
	ring_put(ring, 0, SYS_kill, getpid(), signal);
	ring_put(ring, 1, SYS_getppid);
	ring_put(ring, 2, SYS_getpid);
	CHECK_EQ(ring_batch(ring, 0, 3), 3);
	CHECK_DONE(ring, 2, getpid());
}

int main(void)
{
	struct ring ring = ring_open(4);
	sigset_t usr1;

	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	MUST(sigprocmask(SIG_BLOCK, &usr1, NULL));
	batch_that_signals(&ring, SIGUSR1);
	signal(SIGUSR2, SIG_IGN);
	batch_that_signals(&ring, SIGUSR2);
	batch_that_signals(&ring, SIGCHLD);	/* ignored by default */
	CHECK_EQ(ring_stats(&ring).interrupted, 0);
	return 0;
}
