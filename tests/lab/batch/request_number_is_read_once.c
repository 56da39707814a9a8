// SPDX-License-Identifier: GPL-2.0-only
/*
 * A thread flips a request's number while batches run: between an allowed and a refused call, and
 * between an allowed and a filtered one. What was checked is what is executed.
 */
#include "filter.h"
#include "ring.h"

#define LIMIT_MS 3000		/* of looking for more than one of each */

static struct ring ring;
static int stop;

/* One store a round: Bochs changes between CPUs only where one jumps, so of two stores in a row
 * others see only the second. */
static void *flip(void *numbers)
{
	const uint32_t *nr = numbers;

	for (unsigned int i = 0; !__atomic_load_n(&stop, __ATOMIC_RELAXED); i++)
		__atomic_store_n(&ring.requests[0].nr, nr[i % 2], __ATOMIC_RELAXED);
	return NULL;
}

/* Runs batches of one until both answers were seen `enough` times; any third answer fails. */
static void race(uint32_t first, uint32_t second, long want_first, long want_second)
{
	const uint32_t numbers[2] = { first, second };
	unsigned int firsts = 0, seconds = 0, enough = 2000;
	uint64_t deadline = now_ms() + LIMIT_MS;
	pthread_t thread;

	ring_put(&ring, 0, first);
	stop = 0;
	CHECK_EQ(pthread_create(&thread, NULL, flip, (void *)numbers), 0);
	while (!firsts || !seconds ||
	       ((firsts < enough || seconds < enough) && now_ms() < deadline)) {
		CHECK_EQ(ring_batch(&ring, 0, 1), 1);
		if (ring_result(&ring, 0) == want_first)
			firsts++;
		else if (ring_result(&ring, 0) == want_second)
			seconds++;
		else
			FAIL("a call got past its check: result %ld", ring_result(&ring, 0));
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	CHECK_EQ(pthread_join(thread, NULL), 0);
}

int main(void)
{
	ring = ring_open(1);
	race(SYS_getppid, SYS_exit_group, getppid(), -EOPNOTSUPP);
	race(SYS_getpid, 0xffffffff, getpid(), -ENOSYS);
	filter_call(SYS_getppid, SECCOMP_RET_ERRNO | EACCES);
	race(SYS_getpid, SYS_getppid, getpid(), -EACCES);
	return 0;
}
