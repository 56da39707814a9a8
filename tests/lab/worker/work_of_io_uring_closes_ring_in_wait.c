// SPDX-License-Identifier: GPL-2.0-only
/*
 * The attack: work that the kernel gives to a thread closes the ring in which the thread waits
 * (io_uring closes a file when the request before it completes). Nobody else has that file, and the
 * system call has no reference of its own where the table of files is its thread's alone. The wait
 * must hold the ring.
 */
#include "module.h"
#include "ring.h"
#include "uring.h"

static int announced[2];

static bool is_open(pid_t pid, int fd)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, fd);
	return access(path, F_OK) == 0;
}

/* Has the ring closed once its thread sleeps in it, and then interrupts the wait. */
static pid_t close_when_asleep(const struct ring *ring)
{
	pid_t sleeper = getpid(), pid = MUST(fork());
	int references;

	if (pid)
		return pid;
	MUST(close(ring->fd));
	wait_asleep(sleeper);
	MUST(write(announced[1], "x", 1));
	WAIT_UNTIL(!is_open(sleeper, ring->fd), "the ring is not closed");
	wait_asleep(sleeper);
	references = module_references();
	MUST(kill(sleeper, SIGUSR1));
	CHECK_EQ(references, 1);
	_exit(0);
}

int main(void)
{
	struct uring uring = uring_open();
	struct ring ring = worker_ring_open(4);
	pid_t closer;

	CHECK_EQ(module_references(), 1);
	on_signal(SIGUSR1, count_signal, 0);
	MUST(pipe(announced));
	ring_queue(&ring, 0, SYS_getpid);
	CHECK_EQ(ring_notify(&ring, 1), 1);
	CHECK_EQ(sys(SYS_munmap, ring.requests, TL_RING_BYTES(ring.entries)), 0);
	uring_close_after_poll(&uring, announced[0], ring.fd);

	closer = close_when_asleep(&ring);
	CHECK_EQ(ring_wait(&ring, 0, 0), -EINTR);
	CHECK_EXITED(child_wait(closer), 0);
	CHECK_EQ(enter(ring.fd, 0, TL_ENTER_WAIT), -EBADF);
	module_references_fall_to(0);
	return 0;
}
