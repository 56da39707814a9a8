// SPDX-License-Identifier: GPL-2.0-only
/*
 * A filter ends a thread in the middle of its batch or program. The calls that the thread has made
 * before are counted, the others are not, and nobody is counted as inside.
 */
#include "filter.h"
#include "ring.h"

#define ENTRIES 8u

static struct ring ring;
static unsigned int first;	/* slot of the batch's first request */
static bool as_program;

/* The third request is judged; the second one is no call. */
static void *victim(void *arg)
{
	static const uint32_t numbers[] = { SYS_getpid, SYS_execve, SYS_getppid, SYS_getpid };
	struct tl_program *program = (void *)(ring.requests + ENTRIES);
	unsigned int i;

	filter_call(SYS_getppid, SECCOMP_RET_KILL_THREAD);
	for (i = 0; i < 4; i++)
		ring_put(&ring, first + i, numbers[i]);
	program->at = 0;
	program->steps = 4;
	__atomic_store_n((pid_t *)arg, (pid_t)sys(SYS_gettid), __ATOMIC_RELEASE);
	if (as_program)
		enter(&ring, 4, TL_ENTER_PROGRAM);
	else
		ring_batch(&ring, first, 4);
	FAIL("survived");
}

static void lose_a_thread(void)
{
	pthread_t thread;
	pid_t tid = 0;

	CHECK_EQ(pthread_create(&thread, NULL, victim, &tid), 0);
	while (!__atomic_load_n(&tid, __ATOMIC_ACQUIRE))
		sched_yield();
	wait_thread_end(tid);
}

static void check_counts(long executed, long refused)
{
	struct tl_stats stats = ring_stats(&ring);
	char path[64], text[4096], line[64];

	CHECK_EQ(stats.executed, executed);
	CHECK_EQ(stats.refused, refused);
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", ring.fd);
	CHECK(read_file(path, text, sizeof(text)) > 0);
	snprintf(line, sizeof(line), "\nsubmitted:\t%ld\ncompleted:\t%ld\nthreads-inside:\t0\n",
		 executed + refused, executed + refused);
	if (!strstr(text, line))
		FAIL("no lines '%s' in:\n%s", line, text);
}

int main(void)
{
	ring = ring_open(ENTRIES);
	lose_a_thread();
	check_counts(1, 1);
	first = ENTRIES - 1;	/* the batch goes around the ring's end */
	lose_a_thread();
	check_counts(2, 2);
	as_program = true;
	first = 0;
	lose_a_thread();
	check_counts(3, 3);
	ring_close(&ring);
	return 0;
}
