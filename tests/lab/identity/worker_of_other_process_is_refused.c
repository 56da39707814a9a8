// SPDX-License-Identifier: GPL-2.0-only
/*
 * A process that shares memory, files and working directory with the requester's, but is not it,
 * has limits, children and signals of its own, so it does not make its requests: notify and enter
 * are -EPERM.
 */
#include "ring.h"

static struct ring ring;
static long entered;

/* Shares the parent's thread-local storage: no calls of the C library here. */
static int other_process(void *unused)
{
	(void)unused;
	__atomic_store_n(&entered, ring_ioctl(&ring, TL_IOC_ENTER), __ATOMIC_RELEASE);
	sys(SYS_exit, 0);
	return 0;
}

static pid_t other_start(void)
{
	static char stack[65536] __attribute__((aligned(16)));

	entered = 1;
	return MUST(clone(other_process, stack + sizeof(stack),
			  CLONE_VM | CLONE_FILES | CLONE_FS | SIGCHLD, NULL));
}

int main(void)
{
	pid_t pid;

	/* It is inside, and the requester comes. */
	ring = worker_ring_open(4);
	pid = other_start();
	wait_asleep(pid);
	ring_queue(&ring, 0, SYS_getpid);
	CHECK_EQ(ring_wait(&ring, 1, 0), -EPERM);
	CHECK_EQ(ring_state(&ring, 0), TL_SUBMITTED);
	CHECK_EQ(ring_ioctl(&ring, TL_IOC_EXIT), 0);
	CHECK_EXITED(child_wait(pid), 0);
	CHECK_EQ(entered, 0);

	/* Requests wait, and it comes. */
	ring = worker_ring_open(4);
	ring_queue(&ring, 0, SYS_getpid);
	CHECK_EQ(ring_notify(&ring, 1), 1);
	pid = other_start();
	CHECK_EXITED(child_wait(pid), 0);
	CHECK_EQ(entered, -EPERM);
	CHECK_EQ(ring_state(&ring, 0), TL_SUBMITTED);
	return 0;
}
