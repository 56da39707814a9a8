// SPDX-License-Identifier: GPL-2.0-only
/*
 * The C library's setuid() signals every thread to change its credentials with the caller's. It
 * ends, with workers asleep inside, one in a call and one spinning; all serve on as the new user.
 */
#include "ring.h"

#define WORKERS 3

static struct ring ring;

/* As worker_main, but tolerates the moment in which not all threads have changed. */
static void *serve(void *arg)
{
	struct worker *worker = arg;
	uint64_t deadline = now_ms() + WAIT_MS;

	__atomic_store_n(&worker->tid, (pid_t)sys(SYS_gettid), __ATOMIC_RELEASE);
	do
		worker->result = ring_ioctl(&ring, TL_IOC_ENTER);
	while ((worker->result == -EINTR || worker->result == -EPERM) && now_ms() < deadline);
	CHECK_EQ(sys(SYS_getuid), 1000);
	return NULL;
}

int main(void)
{
	struct worker workers[WORKERS] = { 0 };
	int pipe_fd[2];
	char byte;

	if (getuid() != 0)
		SKIP("needs root to change the user");
	ring = ring_open_spin(8, TL_SETUP_WORKERS, TL_SPIN_US_MAX);
	MUST(pipe(pipe_fd));
	for (int i = 0; i < WORKERS; i++) {
		CHECK_EQ(pthread_create(&workers[i].thread, NULL, serve, &workers[i]), 0);
		while (!__atomic_load_n(&workers[i].tid, __ATOMIC_ACQUIRE))
			sched_yield();
	}
	ring_queue(&ring, 0, SYS_read, pipe_fd[0], &byte, 1);
	CHECK_EQ(ring_notify(&ring, 1), 1);
	while (ring_state(&ring, 0) != TL_RUNNING)
		sched_yield();
	MUST(setgid(1000));
	MUST(setuid(1000));
	CHECK_EQ(write(pipe_fd[1], "x", 1), 1);
	CHECK_EQ(ring_wait(&ring, 0, 0), 0);
	CHECK_DONE(&ring, 0, 1);
	for (unsigned int slot = 0; slot < 4; slot++)
		ring_queue(&ring, slot, slot % 2 ? SYS_getuid : SYS_geteuid);
	CHECK_EQ(ring_wait(&ring, 4, 0), 0);
	for (unsigned int slot = 0; slot < 4; slot++)
		CHECK_DONE(&ring, slot, 1000);
	workers_end(&ring, workers, WORKERS);
	return 0;
}
