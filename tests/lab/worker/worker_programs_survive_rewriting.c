// SPDX-License-Identifier: GPL-2.0-only
/*
 * Workers make programs in memory that another thread rewrites, unmaps and maps again all the time,
 * with signals between the steps: each request completes with some result, and every step's jump
 * and argument stays in bounds, or the kernel would complain.
 */
#include "random.h"
#include "ring.h"

#define STEPS 16u
#define ROUNDS 400u
#define WORKERS 2
#define BYTES 4096u

static struct tl_request *program;
static int stop;

static void random_step(struct random *random, struct tl_request *step)
{
	static const uint32_t numbers[] = {
		SYS_getppid, SYS_sched_yield, SYS_lseek, TL_NR_STORE, TL_NR_INCREASE,
		TL_NR_PROGRAM, SYS_execve, 511,
	};
	uint32_t nr = numbers[random_below(random, 8)];

	/*
	 * A worker may see these with the number that was there before, so no call in the list may
	 * hurt the process itself with any of them: close(2) would end the ring.
	 */
	for (int i = 0; i < 6; i++)
		step->args[i] = random_below(random, 4) ? (uint64_t)-1 - random_below(random, 8) :
							  random_below(random, STEPS + 4);
	nr |= random_next(random) & TL_PROGRAM_BITS;
	if (!random_below(random, 16))
		nr |= 1u << 31;
	__atomic_store_n(&step->nr, nr, __ATOMIC_RELAXED);
	step->condition = (uint8_t)random_below(random, 9);
	step->target = (uint16_t)random_below(random, STEPS + 3);
	step->state = (uint8_t)random_next(random);
}

static void *rewrite(void *arg)
{
	struct random random = random_seeded(7);

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		for (int i = 0; i < 64; i++)
			random_step(&random, &program[random_below(&random, STEPS)]);
		if (random_below(&random, 4))
			continue;
		sys(SYS_mprotect, program, BYTES, PROT_NONE);
		sched_yield();
		sys(SYS_mprotect, program, BYTES, PROT_READ | PROT_WRITE);
	}
	return arg;
}

static void *pester(void *arg)
{
	const struct worker *workers = arg;
	struct random random = random_seeded(8);

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		sys(SYS_tgkill, getpid(), workers[random_below(&random, WORKERS)].tid, SIGUSR1);
		usleep(random_below(&random, 2000));
	}
	return NULL;
}

int main(void)
{
	struct worker workers[WORKERS] = { { .signals = true, .again = true },
					   { .signals = true, .again = true } };
	struct ring ring = worker_ring_open(8);
	pthread_t writer, pest;

	program = (void *)sys(SYS_mmap, NULL, BYTES, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(!is_error(program));
	on_signal(SIGUSR1, count_signal, SA_RESTART);
	for (int i = 0; i < WORKERS; i++)
		worker_start(&workers[i], &ring);
	CHECK_EQ(pthread_create(&pest, NULL, pester, workers), 0);
	CHECK_EQ(pthread_create(&writer, NULL, rewrite, NULL), 0);
	for (unsigned int round = 0; round < ROUNDS; round++) {
		for (unsigned int slot = 0; slot < 4; slot++)
			ring_queue(&ring, slot, TL_NR_PROGRAM, program, STEPS, 200, slot & 1);
		CHECK_EQ(ring_wait(&ring, 4, 0), 0);
		for (unsigned int slot = 0; slot < 4; slot++)
			CHECK_EQ(ring_state(&ring, slot), TL_DONE);
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	CHECK_EQ(pthread_join(writer, NULL), 0);
	CHECK_EQ(pthread_join(pest, NULL), 0);
	/* What lies nowhere, or wraps around the end of the address space, is an error. */
	ring_queue(&ring, 0, TL_NR_PROGRAM, 0x10, STEPS, 10, 0);
	ring_queue(&ring, 1, TL_NR_PROGRAM, -64L, STEPS, 10, 0);
	ring_queue(&ring, 2, TL_NR_PROGRAM, program, TL_ENTRIES_MAX + 1, 10, 0);
	ring_queue(&ring, 3, TL_NR_PROGRAM, program, STEPS, 10, 0, STEPS + 1);
	CHECK_EQ(ring_wait(&ring, 4, 0), 0);
	CHECK_DONE(&ring, 0, -EFAULT);
	CHECK_DONE(&ring, 1, -EFAULT);
	CHECK_DONE(&ring, 2, -EINVAL);
	CHECK_DONE(&ring, 3, -EINVAL);
	workers_end(&ring, workers, WORKERS);
	return 0;
}
