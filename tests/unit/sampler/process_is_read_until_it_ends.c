// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A process's pinned region is read while it changes, without its help; addresses it does not have
 * are told from its end. A thread of it that stands still is told from one that sleeps.
 */
#include <sys/mman.h>

#include "clock.h"
#include "plan_memory.h"
#include "run_times.h"

static volatile uint64_t *region;

static void until_frozen_is(struct threads *threads, uint64_t want)
{
	uint64_t limit = now_ns() + 600 * NS_PER_S;

	do {
		usleep(2000);
		threads_update(threads, now_ns());
		CHECK(now_ns() < limit);
	} while (threads->frozen != want);
}

/* Long enough that a thread that was taken for frozen would be noticed. */
static void stays_unfrozen(struct threads *threads)
{
	uint64_t until = now_ns() + 5 * FROZEN_AFTER_NS;

	while (now_ns() < until) {
		usleep(2000);
		threads_update(threads, now_ns());
		CHECK_EQ(threads->frozen, 0);
	}
}

static void count_on(void)
{
	CHECK_EQ(mlock((void *)region, 4096), 0);
	for (;;)
		(*region)++;
}

int main(void)
{
	struct threads threads;
	struct source source;
	uint64_t first, now, run_ns;
	char text[32];
	pid_t child, sleeper, which;

	region = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(region != MAP_FAILED);
	child = fork();
	if (!child)
		count_on();
	sleeper = fork();
	if (!sleeper)
		for (;;)
			pause();
	snprintf(text, sizeof(text), "process:%d", child);
	source = source_of(text);
	CHECK_EQ(source_read(&source, (uintptr_t)region, &first, 8), 0);
	do
		CHECK_EQ(source_read(&source, (uintptr_t)region, &now, 8), 0);
	while (now == first);
	CHECK_EQ(*region, 0);	/* ours is another page */
	CHECK_EQ(source_read(&source, 8, &now, 8), -EFAULT);

	CHECK_EQ(threads_open(&threads, (pid_t[]){ child, sleeper }, 2, &which), 0);
	threads_update(&threads, now_ns());
	kill(child, SIGSTOP);
	until_frozen_is(&threads, 1);
	run_ns = threads.run_ns[0];
	kill(child, SIGCONT);
	until_frozen_is(&threads, 0);
	CHECK(threads.run_ns[0] > run_ns);
	kill(child, SIGKILL);
	CHECK_EQ(waitpid(child, NULL, 0), child);
	threads_close(&threads);
	CHECK_EQ(source_check(&source), -ENODEV);
	CHECK_EQ(source_read(&source, (uintptr_t)region, &now, 8), -ENODEV);
	source_close(&source);

	CHECK_EQ(threads_open(&threads, &sleeper, 1, &which), 0);
	stays_unfrozen(&threads);
	threads_close(&threads);
	kill(sleeper, SIGKILL);
	CHECK_EQ(waitpid(sleeper, NULL, 0), sleeper);
	CHECK_EQ(threads_open(&threads, &sleeper, 1, &which), -ENOENT);
	CHECK_EQ(which, sleeper);
	return 0;
}
