// SPDX-License-Identifier: GPL-2.0-only
/*
 * A filter kills one thread in the middle of its batch: the others go on using the same ring, and
 * nothing of it stays behind when they close it (the runner looks at the module's users).
 */
#include "filter.h"
#include "ring.h"

static struct ring ring;

static void *victim(void *arg)
{
	filter_call(SYS_getppid, SECCOMP_RET_KILL_THREAD);
	/* Raw: the C library's own bookkeeping at a thread's end does not happen either. */
	ring_put(&ring, 0, SYS_getpid);
	ring_put(&ring, 1, SYS_getppid);
	ring_put(&ring, 2, SYS_getpid);
	__atomic_store_n((pid_t *)arg, (pid_t)sys(SYS_gettid), __ATOMIC_RELEASE);
	ring_batch(&ring, 0, 3);
	FAIL("survived");
}

int main(void)
{
	pthread_t thread;
	pid_t tid = 0;

	ring = ring_open(8);
	CHECK_EQ(pthread_create(&thread, NULL, victim, &tid), 0);
	while (!__atomic_load_n(&tid, __ATOMIC_ACQUIRE))
		sched_yield();
	wait_thread_end(tid);
	CHECK_DONE(&ring, 0, getpid());
	CHECK(ring_state(&ring, 2) != TL_DONE);
	CHECK_EQ(batch_call(&ring, SYS_getppid), getppid());
	ring_close(&ring);
	return 0;
}
