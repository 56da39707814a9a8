// SPDX-License-Identifier: GPL-2.0-only
/*
 * The queue of completions, the descriptor that tells of it, waits with a limit, and cancellation:
 * each request completes once, with its data; nobody who polls is left waiting; what was canceled
 * is never made.
 */
#include "lib_check.h"

#include <poll.h>
#include <sys/epoll.h>

#define ENTRIES 32u
#define ROUNDS 300u
#define WORKERS 3u
#define LOOKS 10u
#define SILENCE_MS 10000
#define LOOK_MS 10
#define MS 1000000ull

static struct tl_psc *psc_of(unsigned int workers)
{
	struct tl_psc *psc = NULL;

	CHECK_EQ(tl_psc_create(&psc, ENTRIES, 0, LIB_FLAGS | TL_COMPLETIONS), 0);
	CHECK_EQ(tl_psc_start(psc, workers), 0);
	return psc;
}

static int add(struct tl_psc *psc, uint64_t data)
{
	int slot = TL_PSC_ADD(psc, SYS_getppid);

	if (slot >= 0)
		CHECK_EQ(tl_psc_set_data(psc, (unsigned int)slot, data), 0);
	return slot;
}

static bool is_readable(int fd, int limit_ms)
{
	struct pollfd poll_fd = { .fd = fd, .events = POLLIN };

	return MUST(poll(&poll_fd, 1, limit_ms)) == 1;
}

static void every_completion_shows_once(void)
{
	struct tl_psc *psc = psc_of(3);
	struct tl_psc_completion completion;
	bool seen[ENTRIES];
	int64_t result;

	CHECK_EQ(tl_psc_result(psc, 0, &result), -EINVAL);
	CHECK_EQ(tl_psc_set_data(psc, ENTRIES, 0), -EINVAL);
	CHECK_EQ(tl_psc_next(psc, &completion), 0);
	for (unsigned int round = 0; round < ROUNDS; round++) {
		unsigned int n = 1 + round % ENTRIES;

		memset(seen, 0, sizeof(seen));
		for (unsigned int i = 0; i < n; i++)
			CHECK(add(psc, round * 1000 + i) >= 0);
		CHECK_EQ(tl_psc_wait(psc, 0), 0);
		for (unsigned int i = 0; i < n; i++) {
			CHECK_EQ(tl_psc_next(psc, &completion), 1);
			CHECK_EQ(completion.result, getppid());
			CHECK_WITHIN(completion.user_data, round * 1000, round * 1000 + n - 1);
			CHECK(!seen[completion.user_data - round * 1000]);
			seen[completion.user_data - round * 1000] = true;
		}
		CHECK_EQ(tl_psc_next(psc, &completion), 0);
	}
	tl_psc_destroy(psc);
}

/* Keeps the ring busy, and sleeps in epoll_wait() alone. */
static void descriptor_tells_of_completions(void)
{
	struct epoll_event event = { .events = EPOLLIN };
	struct tl_psc *psc = psc_of(WORKERS);
	struct tl_psc_completion completion;
	uint64_t sent = 0, sum = 0, taken = 0;
	unsigned int looks = 0;
	int epoll = MUST(epoll_create1(0)), fd = tl_psc_fd(psc);

	CHECK(fd >= 0);
	CHECK_EQ(tl_psc_fd(psc), fd);
	MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
	while (taken < ROUNDS * ENTRIES) {
		while (sent < ROUNDS * ENTRIES && add(psc, sent + 1) >= 0)
			if (++sent % 7 == 0)
				CHECK(tl_psc_notify(psc) > 0);
		CHECK(tl_psc_notify(psc) >= 0);
		if (MUST(epoll_wait(epoll, &event, 1, SILENCE_MS)) != 1)
			FAIL("%lu of %lu completions came, and the descriptor stays silent",
			     (unsigned long)taken, (unsigned long)sent);
		while (tl_psc_next(psc, &completion) == 1) {
			sum += completion.user_data;
			taken++;
		}
	}
	CHECK_EQ(sum, taken * (taken + 1) / 2);
	/*
	 * It is quiet when there is nothing to say. A worker may have been preempted between its
	 * completion and its signal, which then comes late: one from each, at most.
	 */
	for (unsigned int i = 0; i < LOOKS; i++)
		if (is_readable(fd, LOOK_MS)) {
			CHECK_EQ(tl_psc_next(psc, &completion), 0);
			looks++;
		}
	CHECK_WITHIN(looks, 0, 1 + WORKERS);
	close(epoll);
	tl_psc_destroy(psc);
}

static void waits_end_in_time(void)
{
	struct tl_psc *psc = psc_of(1);
	struct tl_psc_completion completion;
	int pipes[2];
	char byte;

	MUST(pipe(pipes));
	CHECK_EQ(tl_psc_wait_for(psc, 0, 0), 0);
	CHECK(TL_PSC_ADD(psc, SYS_read, pipes[0], &byte, 1) >= 0);
	CHECK_EQ(tl_psc_wait_for(psc, 0, 0), -ETIME);
	CHECK_EQ(tl_psc_wait_for(psc, 0, 30 * MS), -ETIME);
	CHECK_EQ(tl_psc_wait_for(psc, 1, 30 * MS), 1);
	MUST(write(pipes[1], "x", 1));
	CHECK_EQ(tl_psc_wait_for(psc, 0, UINT64_MAX), 0);
	CHECK_EQ(tl_psc_next(psc, &completion), 1);
	CHECK_EQ(completion.result, 1);
	close(pipes[0]);
	close(pipes[1]);
	tl_psc_destroy(psc);
}

/* The one worker sleeps in a read, and everything behind it is canceled, over and over. */
static void canceled_requests_are_never_made(void)
{
	struct tl_psc *psc = psc_of(1);
	struct tl_stats stats = { .size = sizeof(stats) };
	struct tl_psc_completion completion;
	int pipes[2], out[2];
	char byte;

	MUST(pipe(pipes));
	MUST(pipe2(out, O_NONBLOCK));
	for (unsigned int round = 0; round < ROUNDS / 10; round++) {
		int slots[ENTRIES], slow = TL_PSC_ADD(psc, SYS_read, pipes[0], &byte, 1);
		unsigned int n = 0;

		CHECK(slow >= 0);
		CHECK_EQ(tl_psc_notify(psc), 1);
		while (n < ENTRIES / 2) {
			slots[n] = TL_PSC_ADD(psc, SYS_write, out[1], "x", 1);
			CHECK(slots[n++] >= 0);
			if (n == ENTRIES / 4)
				CHECK_EQ(tl_psc_notify(psc), ENTRIES / 4);
		}
		/* Half of them are notified, and the last of them stays. */
		while (n-- > 1)
			CHECK_EQ(tl_psc_cancel(psc, (unsigned int)slots[n]), 1);
		CHECK_EQ(tl_psc_cancel(psc, (unsigned int)slots[1]), 0);
		CHECK_EQ(tl_psc_wait_for(psc, 1, MS), -ETIME);
		CHECK_EQ(tl_psc_wait(psc, 2), 2);
		MUST(write(pipes[1], "y", 1));
		CHECK_EQ(tl_psc_wait(psc, 0), 0);
		for (unsigned int i = 0; i < 2; i++) {
			CHECK_EQ(tl_psc_next(psc, &completion), 1);
			CHECK_EQ(completion.result, 1);
		}
		CHECK_EQ(tl_psc_next(psc, &completion), 0);
		CHECK_EQ(tl_psc_cancel(psc, (unsigned int)slow), 0);
		CHECK_EQ(read(out[0], &byte, 1), 1);
		CHECK_EQ(read(out[0], &byte, 1), -1);
	}
	CHECK_EQ(tl_psc_cancel(psc, ENTRIES), -EINVAL);
	CHECK_EQ(tl_psc_get_stats(psc, &stats), 0);
	CHECK_EQ(stats.executed, 2 * (ROUNDS / 10));
	tl_psc_destroy(psc);
}

/* Workers and the requester race for the same requests: each is made, or canceled, and not both. */
static void cancel_races_with_workers(void)
{
	struct tl_psc *psc = psc_of(3);
	struct tl_psc_completion completion;
	unsigned int added = 0, done = 0, canceled = 0;

	while (added < ROUNDS * ENTRIES) {
		int slots[ENTRIES];
		unsigned int n = 0;

		while (n < ENTRIES && (slots[n] = add(psc, added)) >= 0)
			n++, added++;
		CHECK_EQ(tl_psc_notify(psc), n);
		while (n--)
			canceled += tl_psc_cancel(psc, (unsigned int)slots[n]) == 1;
		CHECK_WITHIN(tl_psc_wait(psc, added % 4), 0, added % 4);
		while (tl_psc_next(psc, &completion) == 1) {
			CHECK_EQ(completion.result, getppid());
			done++;
		}
	}
	CHECK_EQ(tl_psc_wait(psc, 0), 0);
	while (tl_psc_next(psc, &completion) == 1)
		done++;
	CHECK_EQ(done + canceled, added);
	tl_psc_destroy(psc);
}

/*
 * All slots are those of canceled requests, and none has a completion: who polls for a slot is told
 * when a worker has come to them.
 */
static void descriptor_tells_of_free_slots(void)
{
	struct tl_psc *psc = psc_of(1);
	struct tl_psc_completion completion;
	int fd = tl_psc_fd(psc), slot;

	for (unsigned int round = 0; round < ROUNDS; round++) {
		for (unsigned int i = 0; i < ENTRIES; i++) {
			slot = add(psc, i);
			CHECK(slot >= 0);
			CHECK_EQ(tl_psc_cancel(psc, (unsigned int)slot), 1);
		}
		CHECK_EQ(add(psc, 0), -EAGAIN);
		CHECK_EQ(tl_psc_next(psc, &completion), 0);
		CHECK_EQ(tl_psc_notify(psc), ENTRIES);
		while ((slot = add(psc, 1)) == -EAGAIN) {
			CHECK(is_readable(fd, SILENCE_MS));
			CHECK_EQ(tl_psc_next(psc, &completion), 0);
		}
		CHECK_EQ(tl_psc_wait(psc, 0), 0);
		CHECK_EQ(tl_psc_next(psc, &completion), 1);
	}
	tl_psc_destroy(psc);
}

int main(void)
{
	struct tl_psc_completion completion;
	struct tl_psc *psc = psc_new(ENTRIES, 0, 1);

	CHECK_EQ(tl_psc_next(psc, &completion), -EINVAL);
	CHECK_EQ(tl_psc_fd(psc), -EINVAL);
	tl_psc_destroy(psc);
	every_completion_shows_once();
	descriptor_tells_of_completions();
	waits_end_in_time();
	canceled_requests_are_never_made();
	cancel_races_with_workers();
	descriptor_tells_of_free_slots();
	return 0;
}
