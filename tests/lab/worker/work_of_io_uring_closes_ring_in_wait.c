// SPDX-License-Identifier: GPL-2.0-only
/*
 * The attack: work that the kernel gives to a thread closes the ring in which the thread waits
 * (io_uring closes a file when the request before it completes), and the ring is unmapped. Nobody
 * else has that file, and the system call has no reference of its own where the table of files is
 * its thread's alone. The wait must hold the ring.
 */
#include "module.h"
#include "ring.h"
#include "uring.h"

static int announced[2];
static bool ready;

static bool is_open(pid_t pid, int fd)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, fd);
	return access(path, F_OK) == 0;
}

/*
 * A thread with a table of files of its own: it has the ring closed once the other thread sleeps in
 * it, and then takes the mapping away, which is the last that holds the file but the wait.
 */
static void *close_and_unmap(void *arg)
{
	struct ring *ring = arg;
	pid_t sleeper = getpid();

	MUST(unshare(CLONE_FILES));
	MUST(close(ring->fd));
	__atomic_store_n(&ready, true, __ATOMIC_SEQ_CST);
	wait_asleep(sleeper);
	MUST(write(announced[1], "x", 1));
	WAIT_UNTIL(!is_open(sleeper, ring->fd), "the ring is not closed");
	wait_asleep(sleeper);
	CHECK_EQ(module_references(), 1);
	CHECK_EQ(sys(SYS_munmap, ring->requests, TL_RING_BYTES(ring->entries)), 0);
	return NULL;
}

int main(void)
{
	struct uring uring = uring_open();
	struct ring ring = worker_ring_open(4);
	pthread_t thread;

	CHECK_EQ(module_references(), 1);
	MUST(pipe(announced));
	ring_queue(&ring, 0, SYS_getpid);
	CHECK_EQ(ring_notify(&ring, 1), 1);
	uring_close_after_poll(&uring, announced[0], ring.fd);
	CHECK_EQ(pthread_create(&thread, NULL, close_and_unmap, &ring), 0);
	while (!__atomic_load_n(&ready, __ATOMIC_SEQ_CST))
		sched_yield();

	CHECK_EQ(ring_wait(&ring, 0, 0), -ESHUTDOWN);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(enter(&ring, 0, TL_ENTER_WAIT), -EBADF);
	module_references_fall_to(0);
	return 0;
}
