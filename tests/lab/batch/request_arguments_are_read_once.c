// SPDX-License-Identifier: GPL-2.0-only
/*
 * A thread flips the descriptor of a batched write between an allowed one and one that a filter
 * denies: not one byte may reach the denied pipe.
 */
#include "filter.h"
#include "ring.h"

#define LIMIT_MS 3000		/* of looking for more than one of each */
#define ENOUGH 2000

static struct ring ring;
static int stop, allowed, denied[2];

/* One store a round: Bochs changes between CPUs only where one jumps, so of two stores in a row
 * others see only the second. */
static void *flip(void *arg)
{
	const __u64 fds[2] = { (__u64)allowed, (__u64)denied[1] };

	for (unsigned int i = 0; !__atomic_load_n(&stop, __ATOMIC_RELAXED); i++)
		__atomic_store_n(&ring.requests[0].args[0], fds[i % 2], __ATOMIC_RELAXED);
	return arg;
}

int main(void)
{
	uint64_t deadline = now_ms() + LIMIT_MS;
	unsigned int written = 0, refused = 0;
	pthread_t thread;
	char byte;

	ring = ring_open(1);
	allowed = MUST(open("/dev/null", O_WRONLY));
	MUST(pipe2(denied, O_NONBLOCK));
	ring_put(&ring, 0, SYS_write, allowed, "x", 1);
	CHECK_EQ(pthread_create(&thread, NULL, flip, NULL), 0);
	filter_install(SYS_write, (uint32_t)denied[1], SECCOMP_RET_ERRNO | EPERM, 0);
	while (!written || !refused ||
	       ((written < ENOUGH || refused < ENOUGH) && now_ms() < deadline)) {
		CHECK_EQ(ring_batch(&ring, 0, 1), 1);
		if (ring_result(&ring, 0) == 1)
			written++;
		else if (ring_result(&ring, 0) == -EPERM)
			refused++;
		else
			FAIL("neither written nor refused: %ld", ring_result(&ring, 0));
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(sys(SYS_read, denied[0], &byte, 1), -EAGAIN);
	return 0;
}
