// SPDX-License-Identifier: GPL-2.0-only
/*
 * A batch executes what was queued, in order, exactly once, and says what each call returned. It
 * tests the library on whichever backend the environment names, plain calls by default.
 */
#include "lib_check.h"

#include <sys/mman.h>

#define ENTRIES 8u

static void results_are_the_calls_own(void)
{
	struct tl_batch *batch = batch_new(ENTRIES);
	int pid_slot = TL_ADD(batch, SYS_getppid), bad_slot = TL_ADD(batch, SYS_close, -1);

	CHECK_EQ(tl_batch_queued(batch), 2);
	CHECK_EQ(tl_batch_flush(batch), 2);
	CHECK_EQ(tl_batch_queued(batch), 0);
	CHECK_EQ(tl_batch_result(batch, (unsigned int)pid_slot), getppid());
	CHECK_EQ(tl_batch_result(batch, (unsigned int)bad_slot), -EBADF);
	CHECK_EQ(tl_batch_flush(batch), 0);
	tl_batch_destroy(batch);
}

static void order_is_kept(void)
{
	struct tl_batch *batch = batch_new(ENTRIES);
	char text[4] = "";
	const char letters[] = "abcdefghijklmnopqrstuvwxyz";
	int pipes[2];

	MUST(pipe(pipes));
	for (int round = 0; round < 100; round++) {
		for (int i = 0; i < 3; i++)
			TL_ADD(batch, SYS_write, pipes[1], &letters[(round + i) % 26], 1);
		TL_ADD(batch, SYS_read, pipes[0], text, 3);
		CHECK_EQ(tl_batch_flush(batch), 4);
		for (int i = 0; i < 3; i++)
			CHECK_EQ(text[i], letters[(round + i) % 26]);
	}
	tl_batch_destroy(batch);
	close(pipes[0]);
	close(pipes[1]);
}

static void full_batch_is_eagain_until_flushed(void)
{
	struct tl_batch *batch = batch_new(ENTRIES);

	for (unsigned int i = 0; i < ENTRIES; i++)
		CHECK_EQ(TL_ADD(batch, SYS_getppid), i);
	CHECK_EQ(TL_ADD(batch, SYS_getppid), -EAGAIN);
	CHECK_EQ(tl_batch_flush(batch), ENTRIES);
	for (unsigned int i = 0; i < ENTRIES; i++)
		CHECK_EQ(tl_batch_result(batch, i), getppid());
	CHECK_EQ(TL_ADD(batch, SYS_getppid), 0);
	tl_batch_destroy(batch);
}

static void refused_and_unknown_calls_are_answered(void)
{
	struct tl_batch *batch = batch_new(ENTRIES);
	struct tl_stats stats = { .size = sizeof(stats) };

	TL_ADD(batch, SYS_clone);
	TL_ADD(batch, 2000);
	TL_ADD(batch, UINT32_MAX);
	TL_ADD(batch, SYS_getppid);
	CHECK_EQ(tl_batch_flush(batch), 4);
	CHECK_EQ(tl_batch_result(batch, 0), -EOPNOTSUPP);
	CHECK_EQ(tl_batch_result(batch, 1), -ENOSYS);
	CHECK_EQ(tl_batch_result(batch, 2), -ENOSYS);
	CHECK_EQ(tl_batch_result(batch, 3), getppid());
	CHECK_EQ(tl_batch_get_stats(batch, &stats), 0);
	CHECK_EQ(stats.executed, 1);
	CHECK_EQ(stats.refused, 3);
	CHECK_EQ(stats.crossings, 1);
	tl_batch_destroy(batch);
}

static void six_arguments_arrive(void)
{
	struct tl_batch *batch = batch_new(ENTRIES);
	int fd = MUST(memfd_create("six", 0));
	const long bytes = 8192;
	int64_t result;
	char *map;

	MUST(ftruncate(fd, bytes));
	MUST(pwrite(fd, "second page", 11, 4096));
	TL_ADD(batch, SYS_mmap, 0, 4096, PROT_READ, MAP_SHARED, fd, 4096);
	CHECK_EQ(tl_batch_flush(batch), 1);
	result = tl_batch_result(batch, 0);
	CHECK(result > 0);
	map = (char *)(uintptr_t)result;
	CHECK_EQ(strcmp(map, "second page"), 0);
	TL_ADD(batch, SYS_munmap, map, 4096);
	TL_ADD(batch, SYS_close, fd);
	CHECK_EQ(tl_batch_flush(batch), 2);
	CHECK_EQ(tl_batch_result(batch, 0), 0);
	CHECK_EQ(tl_batch_result(batch, 1), 0);
	tl_batch_destroy(batch);
}

static void bad_arguments_are_refused(void)
{
	struct tl_batch *batch = NULL;
	struct tl_stats stats = { .size = 0 };

	errno = 0;
	CHECK_EQ(tl_batch_create(&batch, 0, 0), -EINVAL);
	CHECK_EQ(tl_batch_create(&batch, 2 * TL_ENTRIES_MAX, 0), -EINVAL);
	CHECK_EQ(tl_batch_create(&batch, 8, TL_PLAIN | TL_MODULE), -EINVAL);
	CHECK_EQ(tl_batch_create(&batch, 8, 1u << 31), -EINVAL);
	CHECK(!batch);
	batch = batch_new(TL_ENTRIES_MAX);
	CHECK_EQ(tl_batch_get_stats(batch, &stats), -EINVAL);
	tl_batch_destroy(batch);
	tl_batch_destroy(NULL);
	CHECK_EQ(errno, 0);
}

static void sizes_are_rounded_up(void)
{
	static const unsigned int sizes[][2] = {
		{ 1, 1 }, { 2, 2 }, { 3, 4 }, { 5, 8 }, { 100, 128 }, { 128, 128 },
		{ TL_ENTRIES_MAX - 1, TL_ENTRIES_MAX },
	};

	for (unsigned int i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		struct tl_batch *batch = batch_new(sizes[i][0]);
		unsigned int slots = 0;

		while (TL_ADD(batch, SYS_getppid) >= 0)
			slots++;
		CHECK_EQ(slots, sizes[i][1]);
		CHECK_EQ(tl_batch_flush(batch), (int)slots);
		CHECK_EQ(tl_batch_result(batch, slots - 1), getppid());
		tl_batch_destroy(batch);
	}
}

/* Who does not check what adding a call has returned learns of it from the result. */
static void slot_may_be_an_error(void)
{
	struct tl_batch *batch = batch_new(2);
	int slot = -1;

	for (int i = 0; i < 3; i++)
		slot = TL_ADD(batch, SYS_getppid);
	CHECK_EQ(slot, -EAGAIN);
	CHECK_EQ(tl_batch_jump(batch, (unsigned int)slot, TL_IF_ALWAYS, 0), -EAGAIN);
	CHECK_EQ(tl_batch_jump(batch, 0, TL_IF_ALWAYS, (unsigned int)slot), -EAGAIN);
	CHECK_EQ(tl_batch_flush(batch), 2);
	CHECK_EQ(tl_batch_result(batch, (unsigned int)slot), -EAGAIN);
	CHECK(!tl_batch_done(batch, (unsigned int)slot));
	CHECK_EQ(tl_batch_result(batch, (unsigned int)-ENOMEM), -ENOMEM);
	tl_batch_destroy(batch);
}

static void short_stats_leave_the_rest_alone(void)
{
	struct tl_batch *batch = batch_new(1);
	struct tl_stats stats = { .size = 16, .executed = 77 };

	TL_ADD(batch, SYS_getppid);
	CHECK_EQ(tl_batch_flush(batch), 1);
	CHECK_EQ(tl_batch_get_stats(batch, &stats), 0);
	CHECK_EQ(stats.size, 16);
	CHECK_EQ(stats.crossings, 1);
	CHECK_EQ(stats.executed, 77);
	tl_batch_destroy(batch);
}

int main(void)
{
	results_are_the_calls_own();
	order_is_kept();
	full_batch_is_eagain_until_flushed();
	refused_and_unknown_calls_are_answered();
	six_arguments_arrive();
	bad_arguments_are_refused();
	sizes_are_rounded_up();
	slot_may_be_an_error();
	short_stats_leave_the_rest_alone();
	return 0;
}
