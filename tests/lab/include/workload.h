/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Starts processes in supervisor mode that make calls of many kinds and check every result. Tests
 * use them while they do something else to the machine: take CPUs offline, suspend, overwrite
 * registers, or run the soak.
 */
#ifndef TL_TEST_WORKLOAD_H
#define TL_TEST_WORKLOAD_H

#include "random.h"
#include "supervisor.h"

#define WORKLOAD_RUNNERS_MAX 16
#define WORKLOAD_WAIT_MS 20000

struct workload {
	volatile bool end;
	volatile uint64_t rounds[WORKLOAD_RUNNERS_MAX];	/* of each runner, done and right */
	volatile uint64_t inside[WORKLOAD_RUNNERS_MAX];	/* calls that returned inside */
};

struct workload_state {
	struct random random;
	int ends[2], zero;
	long pid;
	volatile uint64_t *inside;
};

static inline void workload_pipe(struct workload_state *state)
{
	uint8_t out[64], in[64];
	uint8_t value = (uint8_t)random_next(&state->random);

	memset(out, value, sizeof(out));
	CHECK_EQ(sys(SYS_write, state->ends[1], out, sizeof(out)), sizeof(out));
	CHECK_EQ(sys(SYS_read, state->ends[0], in, sizeof(in)), sizeof(in));
	CHECK(!memcmp(in, out, sizeof(in)));
}

static inline void workload_calls(struct workload_state *state)
{
	for (int i = 0; i < 200; i++) {
		CHECK_EQ(sys(SYS_getpid), state->pid);
		*state->inside += cpl() == 0;
	}
}

static inline void workload_pages(struct workload_state *state)
{
	char *pages = MUST(mmap(NULL, 8 * 4096, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	long zeroed = 0;

	for (int i = 0; i < 8; i++) {
		sys(SYS_getppid);
		CHECK_EQ(pages[i * 4096], 0);
		pages[i * 4096] = (char)(i + 1);
	}
	while (zeroed < 4 * 4096) {	/* a freezer or signal ends a read after any page */
		long got = sys(SYS_read, state->zero, pages + zeroed, 4 * 4096 - zeroed);

		CHECK(got > 0);
		zeroed += got;
	}
	CHECK_EQ(sys(SYS_mprotect, pages, 8 * 4096, PROT_READ), 0);
	for (int i = 0; i < 8; i++)
		CHECK_EQ(pages[i * 4096], i < 4 ? 0 : i + 1);
	CHECK_EQ(sys(SYS_munmap, pages, 8 * 4096), 0);
}

/* Floating point over calls and interrupts. */
static inline void workload_numbers(struct workload_state *state)
{
	double sum = 0, want = 0;

	for (int i = 0; i < 2000; i++) {
		sum += i * 0.5;
		__asm__ volatile("" : "+x"(sum));
		if (i % 100 == 0)
			sys(SYS_sched_yield);
	}
	want = 2000 * 1999 / 2 * 0.5;
	CHECK(sum == want);
	(void)state;
}

static inline void workload_naps(struct workload_state *state)
{
	struct timespec nap = { .tv_nsec = 1000 * (1 + random_below(&state->random, 200)) };

	CHECK_EQ(sys(SYS_nanosleep, &nap, NULL), 0);
}

static inline void workload_errors(struct workload_state *state)
{
	CHECK_EQ(sys(SYS_read, state->zero, 16, 8), -EFAULT);
	CHECK_EQ(sys(SYS_close, -1), -EBADF);
	CHECK_EQ(sys(600), -ENOSYS);
}

static inline void workload_children(struct workload_state *state)
{
	pid_t pid = MUST(fork());

	if (pid == 0)
		_exit(getppid() == state->pid ? 17 : 1);
	CHECK_EXITED(child_wait(pid), 17);
}

/* One runner until the end; the caller has chosen its mode. */
static inline void workload_run(struct workload *workload, int number)
{
	static void (*const parts[])(struct workload_state *) = {
		workload_pipe, workload_calls, workload_calls, workload_pages, workload_numbers,
		workload_naps, workload_errors, workload_children,
	};
	struct workload_state state = {
		.random = random_seeded(now_us() + (uint64_t)number),
		.zero = MUST(open("/dev/zero", O_RDONLY)),
		.pid = getpid(),
		.inside = &workload->inside[number],
	};

	MUST(pipe(state.ends));
	while (!workload->end) {
		parts[random_below(&state.random, sizeof(parts) / sizeof(*parts))](&state);
		workload->rounds[number]++;
	}
}

/* `switched` of `n` runners in supervisor mode, each a process. */
static inline void workload_start(struct workload *workload, pid_t *pids, int n, int switched)
{
	for (int i = 0; i < n; i++) {
		pids[i] = MUST(fork());
		if (pids[i])
			continue;
		if (i < switched)
			enter_supervisor(0);
		workload_run(workload, i);
		_exit(0);
	}
}

/* Waits until each of n counts has risen by `more`. */
static inline void workload_wait(const volatile uint64_t *counts, int n, uint64_t more,
				 const char *fault)
{
	uint64_t before[WORKLOAD_RUNNERS_MAX], end = now_ms() + WORKLOAD_WAIT_MS, now;

	for (int i = 0; i < n; i++)
		before[i] = counts[i];
	for (int i = 0; i < n; i++) {
		now = now_ms();
		WAIT_UNTIL_MS(end > now ? end - now : 0, counts[i] >= before[i] + more,
			      "runner %d %s", i, fault);
	}
}

/* Waits until each runner has done so many more rounds: none is stuck. */
static inline void workload_progress(const struct workload *workload, int n, uint64_t rounds)
{
	workload_wait(workload->rounds, n, rounds, "is stuck");
}

/* Waits until those that were switched make calls in supervisor mode, still or again. */
static inline void workload_inside(const struct workload *workload, int switched)
{
	workload_wait(workload->inside, switched, 100, "does not come back to supervisor mode");
}

static inline void workload_end(struct workload *workload, const pid_t *pids, int n)
{
	workload->end = true;
	for (int i = 0; i < n; i++)
		CHECK_EXITED(child_wait(pids[i]), 0);
}

#endif /* TL_TEST_WORKLOAD_H */
