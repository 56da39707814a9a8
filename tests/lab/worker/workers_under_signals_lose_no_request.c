// SPDX-License-Identifier: GPL-2.0-only
/*
 * Signals make workers return again and again while they serve, sleep, spin and wait in reads:
 * every request is made once, and reads that were left are taken up by others.
 */
#include <sys/eventfd.h>

#include "random.h"
#include "ring.h"

#define ENTRIES 32u
#define ROUNDS 150u
#define WORKERS 3

static struct worker workers[WORKERS];
static int stop;

static void *pester(void *arg)
{
	struct random random = random_seeded(1);

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		struct worker *worker = &workers[random_below(&random, WORKERS)];

		sys(SYS_tgkill, getpid(), worker->tid, SIGUSR1);
		usleep(random_below(&random, 500));
	}
	return arg;
}

int main(void)
{
	struct ring ring = ring_open_spin(ENTRIES, TL_SETUP_WORKERS, 20);
	int counter = MUST(eventfd(0, 0)), pipe_fd[2];
	uint64_t one = 1, sum;
	char bytes[ENTRIES];
	pthread_t pest;

	MUST(pipe(pipe_fd));
	on_signal(SIGUSR1, count_signal, SA_RESTART);
	for (int i = 0; i < WORKERS; i++) {
		workers[i].signals = workers[i].again = true;
		worker_start(&workers[i], &ring);
	}
	CHECK_EQ(pthread_create(&pest, NULL, pester, NULL), 0);
	for (unsigned int round = 0; round < ROUNDS; round++) {
		/* Two reads that must wait, the rest writes. */
		for (unsigned int slot = 0; slot < ENTRIES; slot++) {
			if (slot == 3 || slot == 9)
				ring_queue(&ring, slot, SYS_read, pipe_fd[0], &bytes[slot], 1);
			else
				ring_queue(&ring, slot, SYS_write, counter, &one, 8);
		}
		CHECK_EQ(ring_wait(&ring, ENTRIES, 2), 2);
		CHECK_EQ(write(pipe_fd[1], "ab", 2), 2);
		CHECK_EQ(ring_wait(&ring, 0, 0), 0);
		for (unsigned int slot = 0; slot < ENTRIES; slot++)
			CHECK_DONE(&ring, slot, slot == 3 || slot == 9 ? 1 : 8);
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	CHECK_EQ(pthread_join(pest, NULL), 0);
	CHECK_EQ(read(counter, &sum, 8), 8);
	CHECK_EQ(sum, ROUNDS * (ENTRIES - 2));
	CHECK_EQ(ring_stats(&ring).executed, ROUNDS * ENTRIES);
	CHECK_EQ(ring_stats(&ring).dropped, 0);
	CHECK(ring_stats(&ring).interrupted > 0);
	workers_end(&ring, workers, WORKERS);
	return 0;
}
