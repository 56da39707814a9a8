// SPDX-License-Identifier: GPL-2.0-only
/* A thread exits the process while others sleep and compute in batches: it ends with its status. */
#include "ring.h"

#define THREADS 4

static pthread_barrier_t barrier;

static void *batcher(void *arg)
{
	static char bytes[1 << 16];
	static struct timespec pause = { .tv_sec = 100000 };
	struct ring ring = ring_open(256);
	int zero = MUST(open("/dev/zero", O_RDONLY));

	for (unsigned int slot = 0; slot < 256; slot++) {
		if ((long)arg % 2)
			ring_put(&ring, slot, SYS_nanosleep, &pause, NULL);
		else
			ring_put(&ring, slot, SYS_read, zero, bytes, sizeof(bytes));
	}
	pthread_barrier_wait(&barrier);
	for (;;)
		ring_batch(&ring, 0, 256);
	return NULL;
}

static void body(void)
{
	pthread_t threads[THREADS];

	CHECK_EQ(pthread_barrier_init(&barrier, NULL, THREADS + 1), 0);
	for (long i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, batcher, (void *)i), 0);
	pthread_barrier_wait(&barrier);
	sleep_ms(5);
	_exit(7);
}

int main(void)
{
	for (int i = 0; i < 5; i++) {
		uint64_t begin_ms = now_ms();

		CHECK_EXITED(child_run(body), 7);
		CHECK(now_ms() - begin_ms < WAIT_MS);
	}
	return 0;
}
