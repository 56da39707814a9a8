// SPDX-License-Identifier: GPL-2.0-only
/*
 * A batch whose order is free makes each call once and says what each returned in its own slot,
 * whatever the order was; calls with the same number and first argument keep theirs, and none
 * passes a barrier. TL_SEED repeats the random part.
 */
#include "lib_check.h"
#include "random.h"

#include <sys/uio.h>
#include <sys/wait.h>

#define FDS 6u			/* of one pipe: what comes out shows how it went in */
#define ROUNDS 300u
#define CALLS_MAX 2048u
#define BLOCK 128u		/* that of lib/batch/order.c: so many calls are sorted together */

struct call {
	uint32_t number;	/* what it writes: its own number */
	uint32_t nr, fd, block;	/* the number of the stretch and of the block in it */
	struct iovec vector;
};

static struct call calls[CALLS_MAX];
static int pipes[2], fds[FDS];
static struct random numbers;

static void same_calls_are_made_side_by_side(void)
{
	struct tl_batch *batch = batch_new_unordered(16);
	char text[8] = "";

	TL_ADD(batch, SYS_write, fds[2], "a", 1);
	TL_ADD(batch, SYS_write, fds[0], "b", 1);
	TL_ADD(batch, SYS_write, -1, "", 1);
	TL_ADD(batch, SYS_write, fds[2], "cc", 2);
	TL_ADD(batch, SYS_write, fds[1], "d", 1);
	CHECK_EQ(tl_batch_barrier(batch), 0);
	TL_ADD(batch, SYS_write, fds[0], "e", 1);
	TL_ADD(batch, SYS_getppid);
	TL_ADD(batch, SYS_read, pipes[0], text, 1);
	CHECK_EQ(tl_batch_flush(batch), 8);
	/* The read is the first behind the barrier, and finds what stood before it. */
	CHECK_EQ(text[0], 'b');
	CHECK_EQ(MUST(read(pipes[0], text, sizeof(text))), 5);
	CHECK_EQ(strncmp(text, "dacce", 5), 0);
	CHECK_EQ(tl_batch_result(batch, 2), -EBADF);
	CHECK_EQ(tl_batch_result(batch, 3), 2);
	CHECK_EQ(tl_batch_result(batch, 6), getppid());
	CHECK_EQ(tl_batch_result(batch, 7), 1);
	for (unsigned int slot = 0; slot < 8; slot++)
		CHECK(tl_batch_done(batch, slot));
	CHECK_EQ(TL_ADD(batch, SYS_getppid), 0);
	CHECK(!tl_batch_done(batch, 0));
	tl_batch_destroy(batch);
}

/* By call, by descriptor; less than 0, 0 or more. */
static int compare(const struct call *one, const struct call *other)
{
	int nr = (int)one->nr - (int)other->nr;

	return nr ? nr : (int)one->fd - (int)other->fd;
}

/* Block by block; each rises or falls as a whole, and equal calls keep their order. */
static void check_order(unsigned int n)
{
	static uint32_t found[CALLS_MAX];
	bool seen[CALLS_MAX] = { false };
	int way = 0;

	CHECK_EQ(MUST(read(pipes[0], found, sizeof(found))), n * sizeof(*found));
	for (unsigned int i = 0; i < n; i++) {
		const struct call *call = &calls[found[i]], *last = &calls[found[i ? i - 1 : 0]];
		int step = compare(call, last);

		CHECK(found[i] < n && !seen[found[i]]);
		seen[found[i]] = true;
		if (!i || call->block != last->block) {
			CHECK(call->block >= last->block);
			way = 0;
			continue;
		}
		CHECK(step ? way * step >= 0 : call->number > last->number);
		way = step ? step : way;
	}
}

static void random_calls_are_each_made_once(void)
{
	struct tl_batch *batch = batch_new_unordered(CALLS_MAX);

	for (unsigned int round = 0; round < ROUNDS; round++) {
		unsigned int n = 1 + random_below(&numbers, round % 8 ? 80 : CALLS_MAX);
		unsigned int stretch = 0, first = 0;

		for (unsigned int i = 0; i < n; i++) {
			struct call *call = &calls[i];

			if (round % 2 && !random_below(&numbers, 6)) {
				stretch++;
				first = i;
				CHECK_EQ(tl_batch_barrier(batch), 0);
			}
			call->number = i;
			call->nr = random_below(&numbers, 3) ? SYS_write : SYS_writev;
			call->fd = random_below(&numbers, 1 + round % FDS);
			call->block = stretch * (CALLS_MAX / BLOCK) + (i - first) / BLOCK;
			call->vector = (struct iovec){ &call->number, sizeof(call->number) };
			CHECK_EQ(call->nr == SYS_write ?
				 TL_ADD(batch, SYS_write, fds[call->fd], &call->number, 4) :
				 TL_ADD(batch, SYS_writev, fds[call->fd], &call->vector, 1), i);
		}
		CHECK_EQ(tl_batch_queued(batch), n);
		CHECK_EQ(tl_batch_flush(batch), n);
		CHECK_EQ(tl_batch_queued(batch), 0);
		for (unsigned int i = 0; i < n; i++)
			CHECK_EQ(tl_batch_result(batch, i), 4);
		check_order(n);
	}
	tl_batch_destroy(batch);
}

static void a_flush_begins_where_the_last_ended(void)
{
	static const char *const wanted[] = { "xyz", "zyx", "xyz" };
	struct tl_batch *batch = batch_new_unordered(4);
	char text[4] = "";

	for (int round = 0; round < 3; round++) {
		TL_ADD(batch, SYS_write, fds[1], "y", 1);
		TL_ADD(batch, SYS_write, fds[2], "z", 1);
		TL_ADD(batch, SYS_write, fds[0], "x", 1);
		CHECK_EQ(tl_batch_flush(batch), 3);
		CHECK_EQ(MUST(read(pipes[0], text, 3)), 3);
		CHECK_EQ(strcmp(text, wanted[round]), 0);
	}
	/* What is in order already stays so, and ended above. */
	TL_ADD(batch, SYS_write, fds[0], "x", 1);
	TL_ADD(batch, SYS_write, fds[1], "y", 1);
	TL_ADD(batch, SYS_write, fds[1], "z", 1);
	CHECK_EQ(tl_batch_flush(batch), 3);
	TL_ADD(batch, SYS_write, fds[1], "a", 1);
	TL_ADD(batch, SYS_write, fds[2], "b", 1);
	TL_ADD(batch, SYS_write, fds[1], "c", 1);
	CHECK_EQ(tl_batch_flush(batch), 3);
	CHECK_EQ(MUST(read(pipes[0], text, 3)), 3);
	CHECK_EQ(strcmp(text, "xyz"), 0);
	CHECK_EQ(MUST(read(pipes[0], text, 3)), 3);
	CHECK_EQ(strcmp(text, "bac"), 0);
	tl_batch_destroy(batch);
}

static void a_ring_full_of_barriers_is_a_strict_one(void)
{
	struct tl_batch *batch = batch_new_unordered(8);
	char text[8];

	for (int round = 0; round < 3; round++) {
		for (unsigned int i = 0; i < 8; i++) {
			CHECK_EQ(tl_batch_barrier(batch), 0);
			CHECK_EQ(tl_batch_barrier(batch), 0);
			CHECK_EQ(TL_ADD(batch, SYS_write, fds[5 - i % 3], &"abcdefgh"[i], 1), i);
		}
		CHECK_EQ(tl_batch_barrier(batch), 0);
		CHECK_EQ(TL_ADD(batch, SYS_getppid), -EAGAIN);
		CHECK_EQ(tl_batch_flush(batch), 8);
		CHECK_EQ(MUST(read(pipes[0], text, sizeof(text))), 8);
		CHECK_EQ(memcmp(text, "abcdefgh", 8), 0);
	}
	/* Barriers are gone with the calls that they stood between. */
	TL_ADD(batch, SYS_write, fds[1], "y", 1);
	TL_ADD(batch, SYS_write, fds[0], "x", 1);
	TL_ADD(batch, SYS_write, fds[1], "z", 1);
	CHECK_EQ(tl_batch_flush(batch), 3);
	CHECK_EQ(MUST(read(pipes[0], text, sizeof(text))), 3);
	CHECK_EQ(memcmp(text, "yzx", 3), 0);
	tl_batch_destroy(batch);
}

static void odd_calls_and_bounds(void)
{
	struct tl_batch *batch = NULL;
	struct tl_psc *psc = NULL;

	CHECK_EQ(tl_batch_create(&batch, TL_ENTRIES_MAX, LIB_FLAGS | TL_UNORDERED), -EINVAL);
	CHECK_EQ(tl_batch_create(&batch, 0, LIB_FLAGS | TL_UNORDERED), -EINVAL);
	CHECK_EQ(tl_batch_create(&batch, 1u << 31, LIB_FLAGS | TL_UNORDERED), -EINVAL);
	CHECK_EQ(tl_psc_create(&psc, 8, 0, LIB_FLAGS | TL_UNORDERED), -EINVAL);
	batch = batch_new_unordered(3);
	for (int i = 0; i < 4; i++)
		CHECK_EQ(TL_ADD(batch, SYS_getppid), i);
	CHECK_EQ(TL_ADD(batch, SYS_getppid), -EAGAIN);
	CHECK_EQ(tl_batch_flush(batch), 4);
	tl_batch_destroy(batch);
	batch = batch_new_unordered(1);
	CHECK_EQ(tl_batch_flush(batch), 0);
	CHECK_EQ(TL_ADD(batch, SYS_getppid), 0);
	CHECK_EQ(TL_ADD(batch, SYS_getppid), -EAGAIN);
	CHECK_EQ(tl_batch_flush(batch), 1);
	tl_batch_destroy(batch);

	batch = batch_new_unordered(TL_UNORDERED_ENTRIES_MAX);
	TL_ADD(batch, UINT32_MAX, UINT64_MAX);
	TL_ADD(batch, SYS_getppid);
	TL_ADD(batch, SYS_clone);
	TL_ADD(batch, 100000);
	CHECK_EQ(tl_batch_flush(batch), 4);
	CHECK_EQ(tl_batch_result(batch, 0), -ENOSYS);
	CHECK_EQ(tl_batch_result(batch, 1), getppid());
	CHECK_EQ(tl_batch_result(batch, 2), -EOPNOTSUPP);
	CHECK_EQ(tl_batch_result(batch, 3), -ENOSYS);
	tl_batch_destroy(batch);
}

static void a_strict_batch_takes_barriers_too(void)
{
	struct tl_batch *batch = batch_new(4);

	TL_ADD(batch, SYS_getppid);
	CHECK_EQ(tl_batch_barrier(batch), 0);
	CHECK_EQ(tl_batch_queued(batch), 1);
	CHECK(!tl_batch_done(batch, 0));
	CHECK_EQ(tl_batch_flush(batch), 1);
	CHECK(tl_batch_done(batch, 0));
	tl_batch_destroy(batch);
}

static void a_child_finds_it_inert(void)
{
	struct tl_batch *batch = batch_new_unordered(8);
	int status;
	pid_t child;

	TL_ADD(batch, SYS_write, fds[1], "x", 1);
	TL_ADD(batch, SYS_write, fds[0], "y", 1);
	child = MUST(fork());
	if (!child) {
		CHECK_EQ(tl_batch_barrier(batch), -EPERM);
		CHECK_EQ(TL_ADD(batch, SYS_getppid), -EAGAIN);
		CHECK_EQ(tl_batch_flush(batch), -EPERM);
		CHECK(!tl_batch_done(batch, 0));
		tl_batch_destroy(batch);
		_exit(0);
	}
	MUST(waitpid(child, &status, 0));
	CHECK_EQ(status, 0);
	CHECK_EQ(tl_batch_flush(batch), 2);
	tl_batch_destroy(batch);
}

int main(void)
{
	numbers = random_seeded(random_choose_seed());
	MUST(pipe(pipes));
	for (unsigned int i = 0; i < FDS; i++)
		fds[i] = MUST(dup(pipes[1]));
	same_calls_are_made_side_by_side();
	random_calls_are_each_made_once();
	a_flush_begins_where_the_last_ended();
	a_ring_full_of_barriers_is_a_strict_one();
	odd_calls_and_bounds();
	a_strict_batch_takes_barriers_too();
	a_child_finds_it_inert();
	return 0;
}
