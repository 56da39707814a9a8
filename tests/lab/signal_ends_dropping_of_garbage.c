/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A worker that drops garbage, as fast as others may add it, still looks for signals (and lets
 * others run): it goes home in the middle. Threads that wait for results make each drop slow.
 */
#include "ring.h"

#define WAITERS 16

struct waiter {
	pthread_t thread;
	pid_t tid;
	unsigned int left;
	long result;
};

static struct ring ring;

static void nothing(int signal)
{
	(void)signal;
}

static void *wait_for_results(void *arg)
{
	struct waiter *waiter = arg;

	__atomic_store_n(&waiter->tid, (pid_t)sys(SYS_gettid), __ATOMIC_RELEASE);
	waiter->result = ring_wait(&ring, 0, waiter->left);
	return NULL;
}

static void waiter_start(struct waiter *waiter, unsigned int left)
{
	waiter->left = left;
	CHECK_EQ(pthread_create(&waiter->thread, NULL, wait_for_results, waiter), 0);
	while (!__atomic_load_n(&waiter->tid, __ATOMIC_ACQUIRE))
		sched_yield();
	wait_asleep(waiter->tid);
}

/* SIGUSR1 to the calling thread, every millisecond. */
static void signals_start(void)
{
	struct itimerspec every = { .it_value.tv_nsec = 1000000, .it_interval.tv_nsec = 1000000 };
	struct sigevent event = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1 };
	timer_t timer;

	event._sigev_un._tid = (pid_t)sys(SYS_gettid);
	on_signal(SIGUSR1, nothing, SA_RESTART);
	MUST(timer_create(CLOCK_MONOTONIC, &event, &timer));
	MUST(timer_settime(timer, 0, &every, NULL));
}

int main(void)
{
	static struct waiter waiters[WAITERS];
	unsigned long dropped;
	unsigned int came_home = 0;

	/* Nothing was ever submitted in these slots. */
	ring = worker_ring_open(TL_ENTRIES_MAX);
	CHECK_EQ(ring_notify(&ring, TL_ENTRIES_MAX), TL_ENTRIES_MAX);
	for (int i = 0; i < WAITERS; i++)
		waiter_start(&waiters[i], i ? 0 : TL_ENTRIES_MAX - 1);

	signals_start();
	do {
		CHECK_EQ(sys(SYS_ioctl, ring.fd, TL_IOC_ENTER), -EINTR);
		dropped = ring_stats(&ring).dropped;
		came_home += dropped > 0 && dropped < TL_ENTRIES_MAX;
	} while (dropped < TL_ENTRIES_MAX);
	CHECK_EQ(dropped, TL_ENTRIES_MAX);
	for (int i = 0; i < WAITERS; i++)
		CHECK_EQ(pthread_join(waiters[i].thread, NULL), 0);
	for (int i = 1; i < WAITERS; i++)
		CHECK_EQ(waiters[i].result, 0);
	CHECK(came_home > 0);
	return 0;
}
