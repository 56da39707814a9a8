/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A process with eight busy threads is switched back and forth a thousand times a second from
 * outside, and by two requesters at once: every call of every thread is right, the last request
 * decides, and the module counts each.
 */
#include "supervisor.h"

#define THREADS 8
#define TIME_MS 3000
#define PERIOD_US 1000

static volatile bool *end;
static long *calls_made;

static void *work(void *unused)
{
	long pid = getpid(), tid = sys(SYS_gettid), calls = 0;
	char byte = 0, *fresh;
	int ends[2];

	(void)unused;
	MUST(pipe(ends));
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
	__atomic_add_fetch(calls_made, calls, __ATOMIC_RELAXED);
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

static long switch_for_a_while(pid_t pid)
{
	uint64_t begin = now_us(), next = begin, now;
	long switches = 0;

	for (; (now = now_us()) < begin + TIME_MS * 1000ul; next += PERIOD_US) {
		while (next > now && next - now > 50) {
			sched_yield();
			now = now_us();
		}
		CHECK_EQ(switches++ % 2 ? switch_user(pid) : switch_supervisor(pid), 0);
	}
	return switches;
}

int main(void)
{
	struct tl_process process;
	pid_t pid, other;
	uint64_t deadline;
	long switches;

	supervisor_need();
	end = shared_memory(sizeof(*end));
	calls_made = shared_memory(sizeof(*calls_made));
	pid = child_start(target);
	sleep_ms(50);
	other = MUST(fork());
	if (other == 0) {
		switch_for_a_while(pid);
		_exit(0);
	}
	switches = switch_for_a_while(pid);
	CHECK_EXITED(child_wait(other), 0);
	fprintf(stderr, "%ld switches by one of two in %d ms\n", switches, TIME_MS);
	CHECK_WITHIN(switches, TIME_MS / 2, TIME_MS + 1);

	deadline = now_ms() + 5000;
	CHECK_EQ(switch_supervisor(pid), 0);
	do {	/* the first thread sleeps in a call: it stays asked */
		process = process_counts(pid);
		CHECK_EQ(process.mode, TL_MODE_SUPERVISOR);
		CHECK_EQ(process.threads, THREADS + 1);
		CHECK(now_ms() < deadline);
	} while (process.supervisor < THREADS);
	*end = true;
	CHECK_EXITED(child_wait(pid), 0);
	CHECK(*calls_made > 10000);
	CHECK_EQ(supervisor_info().processes, 0);
	return 0;
}
