// SPDX-License-Identifier: GPL-2.0-only
/* Threads set up the same file at once: one wins, the others get -EEXIST. */
#include "ring.h"

#define THREADS 4
#define ROUNDS 200

static int fd;
static pthread_barrier_t barrier;

static void *setup(void *result)
{
	pthread_barrier_wait(&barrier);
	*(long *)result = device_setup(fd, 8, 0, 0);
	return NULL;
}

int main(void)
{
	CHECK_EQ(pthread_barrier_init(&barrier, NULL, THREADS), 0);
	for (int round = 0; round < ROUNDS; round++) {
		pthread_t threads[THREADS];
		long results[THREADS];
		int winners = 0;

		fd = device_open();
		for (int i = 0; i < THREADS; i++)
			CHECK_EQ(pthread_create(&threads[i], NULL, setup, &results[i]), 0);
		for (int i = 0; i < THREADS; i++) {
			CHECK_EQ(pthread_join(threads[i], NULL), 0);
			if (results[i] == 0)
				winners++;
			else
				CHECK_EQ(results[i], -EEXIST);
		}
		CHECK_EQ(winners, 1);
		CHECK_EQ(sys(SYS_close, fd), 0);
	}
	return 0;
}
