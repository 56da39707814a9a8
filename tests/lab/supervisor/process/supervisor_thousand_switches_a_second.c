// SPDX-License-Identifier: GPL-2.0-only
/*
 * A process with eight busy threads is switched back and forth a thousand times a second from
 * outside, and by two requesters at once: every call of every thread is right, the last request
 * decides, and the module counts each.
 */
#include "supervisor.h"

#define THREADS 8
#define SWITCHES 3000		/* by each requester */
#define PERIOD_US 1000

static volatile bool *end;
static unsigned int *started;	/* threads that have begun */

static void *work(void *unused)
{
	long pid = getpid(), tid = sys(SYS_gettid), calls = 0;
	char byte = 0, *fresh;
	int ends[2];

	(void)unused;
	MUST(pipe(ends));
	__atomic_add_fetch(started, 1, __ATOMIC_RELAXED);
	while (!*end) {
		CHECK_EQ(sys(SYS_getpid), pid);
		CHECK_EQ(sys(SYS_gettid), tid);
		CHECK_EQ(sys(SYS_write, ends[1], &byte, 1), 1);
		CHECK_EQ(sys(SYS_read, ends[0], &byte, 1), 1);
		if (++calls % 64 == 0) {
			fresh = MUST(mmap(NULL, 8192, PROT_READ | PROT_WRITE,
					  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
			fresh[4096] = 1;
			CHECK_EQ(sys(SYS_munmap, fresh, 8192), 0);
		}
	}
	CHECK(calls > 0);
	return NULL;
}

static void target(void)
{
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, work, NULL), 0);
	for (int i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
}

/* Whoever is late makes up for it. Returns how long it took, milliseconds. */
static uint64_t switch_many(pid_t pid)
{
	uint64_t begin = now_us();

	for (unsigned int i = 0; i < SWITCHES; i++) {
		while (now_us() < begin + i * PERIOD_US)
			sched_yield();
		CHECK_EQ(i % 2 ? raw_switch_user(pid) : raw_switch_supervisor(pid), 0);
	}
	return (now_us() - begin) / 1000;
}

int main(void)
{
	struct tl_process process;
	pid_t pid, other;
	uint64_t deadline;

	supervisor_need();
	end = shared_memory(sizeof(*end));
	started = shared_memory(sizeof(*started));
	pid = child_start(target);
	while (__atomic_load_n(started, __ATOMIC_RELAXED) < THREADS)
		sleep_ms(1);
	other = MUST(fork());
	if (other == 0) {
		switch_many(pid);
		_exit(0);
	}
	fprintf(stderr, "%d switches by one of two in %llu ms\n", SWITCHES,
		(unsigned long long)switch_many(pid));
	CHECK_EXITED(child_wait(other), 0);

	deadline = now_ms() + WAIT_MS;
	CHECK_EQ(raw_switch_supervisor(pid), 0);
	do {	/* the first thread sleeps in a call: it stays asked */
		process = process_counts(pid);
		CHECK_EQ(process.mode, TL_MODE_SUPERVISOR);
		CHECK_EQ(process.threads, THREADS + 1);
		CHECK(now_ms() < deadline);
	} while (process.supervisor < THREADS);
	*end = true;
	CHECK_EXITED(child_wait(pid), 0);
	CHECK_EQ(supervisor_info().processes, 0);
	return 0;
}
