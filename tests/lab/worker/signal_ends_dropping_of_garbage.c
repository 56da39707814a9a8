// SPDX-License-Identifier: GPL-2.0-only
/*
 * A worker that drops garbage, while another thread adds more, still looks for signals (and lets
 * others run): it returns in the middle. Garbage comes in portions, all of one at once, so a
 * worker that has dropped a part of one was not waiting for the next.
 */
#include "ring.h"

#define PORTION (TL_ENTRIES_MAX / 2)

static struct ring ring;
static int enough;
static unsigned long added;	/* written by the adding thread only */

/* Nothing was ever submitted in the slots that are named here. */
static void *add_garbage(void *unused)
{
	(void)unused;
	while (!__atomic_load_n(&enough, __ATOMIC_ACQUIRE)) {
		long count = ring_notify(&ring, PORTION);

		CHECK(count == PORTION || count == -EAGAIN);
		if (count == PORTION)
			added += PORTION;
		else
			sched_yield();
	}
	return NULL;
}

/* SIGUSR1 to the calling thread, every millisecond. */
static void signals_start(void)
{
	struct itimerspec every = { .it_value.tv_nsec = 1000000, .it_interval.tv_nsec = 1000000 };
	struct sigevent event = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1 };
	timer_t timer;

	event._sigev_un._tid = (pid_t)sys(SYS_gettid);
	on_signal(SIGUSR1, count_signal, SA_RESTART);
	MUST(timer_create(CLOCK_MONOTONIC, &event, &timer));
	MUST(timer_settime(timer, 0, &every, NULL));
}

static unsigned long work_until_signal(void)
{
	CHECK_EQ(ring_ioctl(&ring, TL_IOC_ENTER), -EINTR);
	return ring_stats(&ring).dropped;
}

int main(void)
{
	pthread_t adding;

	ring = worker_ring_open(TL_ENTRIES_MAX);
	CHECK_EQ(pthread_create(&adding, NULL, add_garbage, NULL), 0);
	signals_start();
	while (work_until_signal() % PORTION == 0)
		; /* the signal came before the work, or after it: the runner's limit ends this */
	__atomic_store_n(&enough, 1, __ATOMIC_RELEASE);
	CHECK_EQ(pthread_join(adding, NULL), 0);
	while (work_until_signal() < added)
		;
	CHECK_EQ(ring_stats(&ring).dropped, added);
	return 0;
}
