// SPDX-License-Identifier: GPL-2.0-only
/*
 * A process that shares memory, files and working directory with the requester's, but is not it,
 * has limits, children and signals of its own. So it is neither worker nor requester of its ring:
 * notify and enter are -EPERM, also where nobody else uses the ring. A child of vfork(2) that
 * entered would wait for its parent, which waits for it.
 */
#include "ring.h"

#define HANGS_S 300	/* then a parent that waits for its child for ever is ended */

static struct ring ring;
static long entered, notified;

/* Shares the parent's thread-local storage: no calls of the C library here. */
static int other_process(void *unused)
{
	(void)unused;
	notified = ring_notify(&ring, 0);
	__atomic_store_n(&entered, ring_ioctl(&ring, TL_IOC_ENTER), __ATOMIC_RELEASE);
	sys(SYS_exit, 0);
	return 0;
}

static void check_refused(int flags)
{
	static char stack[65536] __attribute__((aligned(16)));

	entered = notified = 1;
	CHECK_EXITED(child_wait(MUST(clone(other_process, stack + sizeof(stack),
					   CLONE_VM | flags | SIGCHLD, NULL))), 0);
	CHECK_EQ(notified, -EPERM);
	CHECK_EQ(entered, -EPERM);
}

int main(void)
{
	static const int flags[] = { CLONE_FILES | CLONE_FS, 0, CLONE_VFORK };
	struct worker worker = { 0 };

	alarm(HANGS_S);
	ring = worker_ring_open(4);
	for (unsigned int i = 0; i < sizeof(flags) / sizeof(*flags); i++)
		check_refused(flags[i]);
	ring_queue(&ring, 0, SYS_getpid);
	CHECK_EQ(ring_notify(&ring, 1), 1);
	for (unsigned int i = 0; i < sizeof(flags) / sizeof(*flags); i++)
		check_refused(flags[i]);
	CHECK_EQ(ring_state(&ring, 0), TL_SUBMITTED);
	worker_start(&worker, &ring);
	CHECK_EQ(ring_wait(&ring, 0, 0), 0);
	CHECK_DONE(&ring, 0, getpid());
	check_refused(CLONE_VFORK);
	workers_end(&ring, &worker, 1);
	return 0;
}
