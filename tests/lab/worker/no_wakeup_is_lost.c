// SPDX-License-Identifier: GPL-2.0-only
/*
 * Calls that sleep for a moment, calls that do not, notifies of one request and of many, and no
 * worker to spare: whoever goes to sleep as the last one while a request arrives must have another
 * worker woken. A lost wake-up leaves a request behind for ever: then this program reaches its time
 * limit.
 */
#include "random.h"
#include "ring.h"

#define ENTRIES 16u
#define ROUNDS 500u
#define WORKERS 4

static void queue_one(struct ring *ring, struct random *random, unsigned int slot, int sink)
{
	static const struct timespec moment = { .tv_nsec = 1 };

	switch (random_below(random, 4)) {
	case 0:
		ring_queue(ring, slot, SYS_nanosleep, &moment, NULL);
		break;
	case 1:
		ring_queue(ring, slot, SYS_sched_yield);
		break;
	case 2:
		ring_queue(ring, slot, SYS_write, sink, "x", 1);
		break;
	default:
		ring_queue(ring, slot, SYS_getppid);
		break;
	}
}

/* Up to three workers sleep in reads that end only when the last request, a write, is made. */
static void check_readers(struct ring *ring, struct random *random, const int *pipe_fd)
{
	unsigned int readers = 1 + random_below(random, WORKERS - 1);
	char bytes[WORKERS];

	for (unsigned int slot = 0; slot < readers; slot++) {
		ring_queue(ring, slot, SYS_read, pipe_fd[0], &bytes[slot], 1);
		CHECK_EQ(ring_notify(ring, 1), 1);
		if (random_below(random, 2))
			sched_yield();
	}
	ring_queue(ring, readers, SYS_write, pipe_fd[1], "xyz", readers);
	CHECK_EQ(ring_wait(ring, 1, 0), 0);
	for (unsigned int slot = 0; slot < readers; slot++)
		CHECK_DONE(ring, slot, 1);
	CHECK_DONE(ring, readers, readers);
}

static void run(unsigned int spin_us, uint64_t seed)
{
	struct ring ring = ring_open_spin(ENTRIES, TL_SETUP_WORKERS, spin_us);
	struct random random = random_seeded(seed);
	struct worker workers[WORKERS] = { 0 };
	int readers[2], sink = MUST(open("/dev/null", O_WRONLY));

	MUST(pipe(readers));
	for (int i = 0; i < WORKERS; i++)
		worker_start(&workers[i], &ring);
	for (unsigned int round = 0; round < ROUNDS; round++) {
		unsigned int n = 1 + random_below(&random, ENTRIES), notified = 0;

		for (unsigned int slot = 0; slot < n; slot++) {
			queue_one(&ring, &random, slot, sink);
			if (random_below(&random, 3) == 0) {
				CHECK_EQ(ring_notify(&ring, slot + 1 - notified),
					 slot + 1 - notified);
				notified = slot + 1;
			}
		}
		CHECK_EQ(ring_wait(&ring, n - notified, 0), 0);
		check_readers(&ring, &random, readers);
	}
	CHECK_EQ(ring_stats(&ring).dropped, 0);
	workers_end(&ring, workers, WORKERS);
	close(sink);
}

int main(void)
{
	run(0, 1);
	run(20, 2);
	return 0;
}
