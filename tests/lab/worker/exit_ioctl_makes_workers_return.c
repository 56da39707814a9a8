/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * TL_IOC_EXIT: idle workers return what they served, a call under way finishes, waiters and all
 * that come later are told -ESHUTDOWN, requests not begun stay as they are.
 */
#include "ring.h"

static struct ring ring;

static void *wait_main(void *arg)
{
	__atomic_store_n((pid_t *)arg, (pid_t)sys(SYS_gettid), __ATOMIC_RELEASE);
	return (void *)ring_wait(&ring, 0, 0);
}

int main(void)
{
	struct worker workers[2] = { 0 }, late = { 0 };
	int pipe_fd[2];
	pthread_t waiter;
	pid_t tid = 0;
	void *waited;
	char byte;

	ring = worker_ring_open(4);
	MUST(pipe(pipe_fd));
	worker_start(&workers[0], &ring);
	worker_start(&workers[1], &ring);
	ring_put(&ring, 0, SYS_read, pipe_fd[0], &byte, 1);
	ring_put(&ring, 1, SYS_read, pipe_fd[0], &byte, 1);
	ring_put(&ring, 2, SYS_getpid);
	for (unsigned int slot = 0; slot < 3; slot++)
		ring_submit(&ring, slot);
	CHECK_EQ(ring_notify(&ring, 3), 3);
	while (ring_state(&ring, 0) != TL_RUNNING || ring_state(&ring, 1) != TL_RUNNING)
		sched_yield();
	CHECK_EQ(pthread_create(&waiter, NULL, wait_main, &tid), 0);
	while (!__atomic_load_n(&tid, __ATOMIC_ACQUIRE))
		sched_yield();
	wait_asleep(tid);

	CHECK_EQ(sys(SYS_ioctl, ring.fd, TL_IOC_EXIT), 0);
	CHECK_EQ(pthread_join(waiter, &waited), 0);
	CHECK_EQ((long)waited, -ESHUTDOWN);
	CHECK_EQ(ring_notify(&ring, 1), -ESHUTDOWN);
	CHECK_EQ(ring_wait(&ring, 0, 0), -ESHUTDOWN);
	CHECK_EQ(ring_state(&ring, 0), TL_RUNNING);
	CHECK_EQ(write(pipe_fd[1], "12", 2), 2);
	worker_join(&workers[0]);
	worker_join(&workers[1]);
	CHECK_EQ(workers[0].result, 1);
	CHECK_EQ(workers[1].result, 1);
	CHECK_DONE(&ring, 0, 1);
	CHECK_DONE(&ring, 1, 1);
	CHECK_EQ(ring_state(&ring, 2), TL_SUBMITTED);
	worker_start(&late, &ring);
	worker_join(&late);
	CHECK_EQ(late.result, -ESHUTDOWN);
	CHECK_EQ(sys(SYS_ioctl, ring.fd, TL_IOC_EXIT), 0);
	return 0;
}
