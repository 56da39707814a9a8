// SPDX-License-Identifier: GPL-2.0-only
/*
 * Threads that make the process's first calls at the same moment share one descriptor in the end,
 * round after round of closing it; each of their calls succeeds.
 */
#include "lib_supervisor.h"

#define THREADS 8
#define ROUNDS 200

static pthread_barrier_t start, end;

static void *body(void *argument)
{
	struct tl_supervisor info = { .size = sizeof(info) };

	for (int i = 0; i < ROUNDS; i++) {
		pthread_barrier_wait(&start);
		CHECK_EQ(tl_supervisor_get(&info), 0);
		CHECK_EQ(info.size, sizeof(info));
		pthread_barrier_wait(&end);
	}
	return argument;
}

int main(void)
{
	pthread_t threads[THREADS];
	int fd = -1;

	MUST(pthread_barrier_init(&start, NULL, THREADS + 1));
	MUST(pthread_barrier_init(&end, NULL, THREADS + 1));
	for (int i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, body, NULL), 0);
	for (int i = 0; i < ROUNDS; i++) {
		pthread_barrier_wait(&start);
		pthread_barrier_wait(&end);
		CHECK_EQ(device_descriptors(&fd), 1);
		close(fd);
	}
	for (int i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
	return 0;
}
