// SPDX-License-Identifier: GPL-2.0-only
/*
 * Under a timer that interrupts every half millisecond, batches of writes and short sleeps are
 * ended early again and again: resubmitted, every write is made exactly once and in order.
 */
#include "ring.h"

#define ENTRIES 64u
#define BATCHES 150u

int main(void)
{
	struct ring ring = ring_open(ENTRIES);
	struct timespec pause = { .tv_nsec = 100000 };
	uint32_t numbers[ENTRIES], seen[ENTRIES], next = 0;
	int fd = MUST((int)syscall(SYS_memfd_create, "storm", 0));
	unsigned int short_batches = 0;

	MUST(fcntl(fd, F_SETFL, O_APPEND));
	on_signal(SIGALRM, count_signal, SA_RESTART);
	MUST(setitimer(ITIMER_REAL, &(struct itimerval){ { 0, 500 }, { 0, 500 } }, NULL));
	for (unsigned int batch = 0; batch < BATCHES; batch++) {
		for (unsigned int slot = 0; slot < ENTRIES; slot++) {
			numbers[slot] = batch * ENTRIES + slot;
			if (slot % 16 == 15)
				ring_put(&ring, slot, SYS_nanosleep, &pause, NULL);
			else
				ring_put(&ring, slot, SYS_write, fd, &numbers[slot], 4);
		}
		for (unsigned int done = 0; done < ENTRIES;) {
			long result = ring_batch(&ring, done, ENTRIES - done);

			CHECK_WITHIN(result, 1, ENTRIES - done);
			done += (unsigned int)result;
			short_batches += done < ENTRIES;
		}
	}
	alarm_ms(0, 0);
	CHECK(handled > 0);
	CHECK(short_batches > 0);
	MUST(lseek(fd, 0, SEEK_SET));
	for (ssize_t n; (n = MUST(read(fd, seen, sizeof(seen)))) > 0;) {
		for (ssize_t i = 0; i < n / 4; i++, next++) {
			next += next % 16 == 15;	/* that slot slept */
			CHECK_EQ(seen[i], next);
		}
	}
	next += next % 16 == 15;
	CHECK_EQ(next, BATCHES * ENTRIES);
	return 0;
}
