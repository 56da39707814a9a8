/* SPDX-License-Identifier: GPL-2.0-only */
/* Another thread closes the descriptor and unmaps the ring while a batch sleeps: it goes on. */
#include "ring.h"

static struct ring ring;
static int pipe_fd[2];
static pid_t tid;

static void *batcher(void *arg)
{
	static char byte;

	(void)arg;
	for (unsigned int slot = 0; slot < 8; slot++)
		ring_put(&ring, slot, SYS_read, pipe_fd[0], &byte, 1);
	__atomic_store_n(&tid, (pid_t)sys(SYS_gettid), __ATOMIC_RELEASE);
	return (void *)ring_batch(&ring, 0, 8);
}

int main(void)
{
	pthread_t thread;
	void *done;

	ring = ring_open(8);
	MUST(pipe(pipe_fd));
	CHECK_EQ(pthread_create(&thread, NULL, batcher, NULL), 0);
	while (!__atomic_load_n(&tid, __ATOMIC_ACQUIRE))
		sched_yield();
	wait_asleep(tid);
	ring_close(&ring);
	CHECK_EQ(write(pipe_fd[1], "12345678", 8), 8);
	CHECK_EQ(pthread_join(thread, &done), 0);
	CHECK_EQ((long)done, 8);
	return 0;
}
