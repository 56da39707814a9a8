// SPDX-License-Identifier: GPL-2.0-only
/*
 * A program of calls passes results and words of memory on, jumps as its conditions say, and gives
 * every request a result. It tests the library on whichever backend the environment names.
 */
#include "lib_check.h"

#include <sys/mman.h>
#include <sys/stat.h>

#define ENTRIES 32u

static const char greeting[] = "hello, program";

/* A file of a name that the tests may open again. */
static const char *file_make(const char *text)
{
	static char path[64];
	int fd;

	snprintf(path, sizeof(path), "/tmp/program-%d", (int)getpid());
	fd = MUST(open(path, O_RDWR | O_CREAT | O_TRUNC, 0600));
	MUST(write(fd, text, strlen(text)));
	close(fd);
	return path;
}

static int64_t result(const struct tl_batch *batch, int slot)
{
	CHECK(tl_batch_done(batch, (unsigned int)slot));
	return tl_batch_result(batch, (unsigned int)slot);
}

/* Opens, asks for the size, reads that much and closes: the calls of one file. */
static int add_file(struct tl_batch *batch, const char *path, struct stat *st, char *buffer)
{
	int o = TL_ADD(batch, SYS_openat, AT_FDCWD, path, O_RDONLY);

	TL_ADD(batch, SYS_fstat | TL_RESULT(0), o, st);
	TL_ADD(batch, SYS_read | TL_RESULT(0) | TL_WORD64(2), o, buffer, &st->st_size);
	TL_ADD(batch, SYS_close | TL_RESULT(0), o);
	return o;
}

static void whole_files_are_read_in_one_flush(void)
{
	struct tl_batch *batch = batch_new(ENTRIES);
	struct tl_stats stats = { .size = sizeof(stats) };
	const char *path = file_make(greeting);
	static char buffer[8][64];
	struct stat st[8];
	int slots[8];

	for (int i = 0; i < 8; i++)
		slots[i] = add_file(batch, i == 3 ? "/absent" : path, &st[i], buffer[i]);
	CHECK_EQ(tl_batch_flush(batch), 32);
	for (int i = 0; i < 8; i++) {
		CHECK_EQ(result(batch, slots[i] + 1), i == 3 ? -ECANCELED : 0);
		CHECK_EQ(result(batch, slots[i] + 2),
			 i == 3 ? -ECANCELED : (long)sizeof(greeting) - 1);
		CHECK_EQ(result(batch, slots[i] + 3), i == 3 ? -ECANCELED : 0);
		if (i != 3)
			CHECK(!memcmp(buffer[i], greeting, sizeof(greeting) - 1));
	}
	CHECK_EQ(result(batch, slots[3]), -ENOENT);
	CHECK_EQ(tl_batch_get_stats(batch, &stats), 0);
	CHECK_EQ(stats.executed, 29);
	if (tl_batch_backend(batch) == TL_BACKEND_MODULE)
		CHECK_EQ(stats.crossings, 1);
	/* The next flush of the same batch begins anew. */
	TL_ADD(batch, SYS_getppid);
	CHECK_EQ(tl_batch_flush(batch), 1);
	CHECK_EQ(result(batch, 0), getppid());
	tl_batch_destroy(batch);
	unlink(path);
}

static void words_of_32_bits_are_unsigned(void)
{
	struct tl_batch *batch = batch_new(ENTRIES);
	int pipes[2] = { -1, -1 };
	uint32_t high = 0xfffffffe;
	uint64_t copy = 0;
	char text[4];
	int slot;

	TL_ADD(batch, SYS_pipe2, pipes, O_NONBLOCK);
	TL_ADD(batch, SYS_write | TL_WORD32(0), &pipes[1], "abc", 3);
	slot = TL_ADD(batch, SYS_read | TL_WORD32(0), &pipes[0], text, 4);
	TL_ADD(batch, SYS_close | TL_WORD32(0), &pipes[0]);
	TL_ADD(batch, SYS_close | TL_WORD32(0), &pipes[1]);
	TL_ADD(batch, TL_NR_STORE | TL_WORD32(1), &copy, &high);
	CHECK_EQ(tl_batch_flush(batch), 6);
	CHECK_EQ(result(batch, slot), 3);
	CHECK(!memcmp(text, "abc", 3));
	CHECK_EQ(result(batch, slot + 2), 0);
	CHECK_EQ(copy, 0xfffffffe);
	CHECK_EQ(close(pipes[0]), -1);
	tl_batch_destroy(batch);
}

static void wrong_requests_have_an_error(void)
{
	struct tl_batch *batch = batch_new(ENTRIES);
	uint64_t word = 1;
	int error, first = TL_ADD(batch, SYS_close | TL_RESULT(0), 1);

	CHECK_EQ(first, 0);
	TL_ADD(batch, SYS_getppid | TL_RESULT(0), 7);			/* a slot of no request */
	TL_ADD(batch, SYS_getppid | TL_RESULT(0), UINT64_MAX);
	error = TL_ADD(batch, SYS_getppid | TL_WORD64(5), 0, 0, 0, 0, 0, 8);	/* not mapped */
	TL_ADD(batch, SYS_getppid | TL_WORD32(1), 0, -1);
	TL_ADD(batch, TL_NR_STORE, 0, 1);
	TL_ADD(batch, TL_NR_INCREASE, 8, 1);
	CHECK_EQ(tl_batch_flush(batch), 7);
	CHECK_EQ(result(batch, 0), -ECANCELED);	/* of a request that comes later */
	CHECK_EQ(result(batch, 1), -EINVAL);
	CHECK_EQ(result(batch, 2), -EINVAL);
	for (int slot = error; slot < error + 4; slot++)
		CHECK_EQ(result(batch, slot), -EFAULT);

	TL_ADD(batch, SYS_clone | TL_WORD64(0), &word);
	TL_ADD(batch, 2000 | TL_WORD64(0), &word);
	TL_ADD(batch, SYS_getppid | 1u << 25);
	TL_ADD(batch, UINT32_MAX);
	CHECK_EQ(tl_batch_flush(batch), 4);
	CHECK_EQ(result(batch, 0), -EOPNOTSUPP);
	for (int slot = 1; slot < 4; slot++)
		CHECK_EQ(result(batch, slot), -ENOSYS);

	CHECK_EQ(tl_batch_jump(batch, 0, TL_IF_ALWAYS, 0), -EINVAL);	/* nothing is queued */
	TL_ADD(batch, SYS_getppid);
	CHECK_EQ(tl_batch_jump(batch, 0, TL_IF_ALWAYS, 2), -EINVAL);
	CHECK_EQ(tl_batch_jump(batch, 1, TL_IF_ALWAYS, 1), -EINVAL);
	CHECK_EQ(tl_batch_flush(batch), 1);
	tl_batch_destroy(batch);
}

static void conditions_look_at_the_result(void)
{
	static const struct {
		enum tl_condition condition;
		int64_t result;		/* also: of a step whose third argument is 10 */
		bool jumps;
	} cases[] = {
		{ TL_IF_ALWAYS, 5, true },	{ TL_IF_ALWAYS, -EBADF, true },
		{ TL_IF_ERROR, -1, true },	{ TL_IF_ERROR, -4095, true },
		{ TL_IF_ERROR, -4096, false },	{ TL_IF_ERROR, 0, false },
		{ TL_IF_SUCCESS, -4096, true }, { TL_IF_SUCCESS, 0, true },
		{ TL_IF_SUCCESS, -1, false },	{ TL_IF_ZERO, 0, true },
		{ TL_IF_ZERO, 1, false },	{ TL_IF_ZERO, -1, false },
		{ TL_IF_POSITIVE, 1, true },	{ TL_IF_POSITIVE, 0, false },
		{ TL_IF_POSITIVE, -1, false },	{ TL_IF_SHORT, 9, true },
		{ TL_IF_SHORT, 0, true },	{ TL_IF_SHORT, 10, false },
		{ TL_IF_SHORT, -1, false },	{ TL_IF_FULL, 10, true },
		{ TL_IF_FULL, 9, false },	{ (enum tl_condition)7, 0, false },
	};
	struct tl_batch *batch = batch_new(ENTRIES);
	uint64_t word;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		TL_ADD(batch, TL_NR_STORE, &word, cases[i].result, 10);
		TL_ADD(batch, SYS_getppid);
		CHECK_EQ(tl_batch_jump(batch, 0, cases[i].condition, tl_batch_next(batch)), 0);
		CHECK_EQ(tl_batch_flush(batch), 2);
		CHECK_EQ(result(batch, 0), cases[i].result);
		CHECK_EQ(result(batch, 1), cases[i].jumps ? -ECANCELED : getppid());
	}
	tl_batch_destroy(batch);
}

static void loop_copies_until_the_end_of_file(void)
{
	enum { SIZE = 10000, STEP = 4096 };
	struct tl_batch *batch = batch_new(ENTRIES);
	int from = MUST(memfd_create("from", 0)), to = MUST(memfd_create("to", 0));
	static char source[SIZE], copy[SIZE], buffer[STEP];
	int r, w;

	for (int i = 0; i < SIZE; i++)
		source[i] = (char)(i * 7 + i / 256);
	MUST(pwrite(from, source, SIZE, 0));
	r = TL_ADD(batch, SYS_read, from, buffer, STEP);
	w = TL_ADD(batch, SYS_write | TL_RESULT(2), to, buffer, r);
	CHECK_EQ(tl_batch_jump(batch, (unsigned int)w, TL_IF_FULL, (unsigned int)r), 0);
	TL_ADD(batch, SYS_getppid);	/* a short write would end here */
	CHECK_EQ(tl_batch_jump(batch, (unsigned int)r, TL_IF_ZERO, tl_batch_next(batch)), 0);
	CHECK_EQ(tl_batch_flush(batch), 3);
	CHECK_EQ(result(batch, r), 0);
	CHECK_EQ(result(batch, w), SIZE % STEP);
	CHECK_EQ(result(batch, w + 1), -ECANCELED);
	CHECK_EQ(pread(to, copy, SIZE, 0), SIZE);
	CHECK(!memcmp(source, copy, SIZE));
	tl_batch_destroy(batch);
	close(from);
	close(to);
}

/* Results of a loop are kept by TL_NR_STORE at an address that TL_NR_INCREASE moves on. */
static void loop_keeps_its_results(void)
{
	struct tl_batch *batch = batch_new(ENTRIES);
	int fd = MUST(memfd_create("positions", 0));
	uint64_t kept[9] = { 0 }, where = (uintptr_t)kept, left = 8;
	int s;

	s = TL_ADD(batch, SYS_lseek, fd, 100, SEEK_CUR);
	TL_ADD(batch, TL_NR_STORE | TL_WORD64(0) | TL_RESULT(1), &where, s);
	TL_ADD(batch, TL_NR_INCREASE, &where, sizeof(kept[0]));
	TL_ADD(batch, TL_NR_INCREASE, &left, -1);
	CHECK_EQ(tl_batch_jump(batch, 3, TL_IF_POSITIVE, 0), 0);
	CHECK_EQ(tl_batch_flush(batch), 4);
	for (uint64_t i = 0; i < 8; i++)
		CHECK_EQ(kept[i], 100 * (i + 1));
	CHECK_EQ(kept[8], 0);
	CHECK_EQ(left, 0);
	tl_batch_destroy(batch);
	close(fd);
}

/* A request is read once, before its step; and a ring is memory that a program may use. */
static void step_may_rewrite_its_own_request(void)
{
	struct tl_batch *batch = batch_new(ENTRIES);
	__s64 *result_of_first = &batch->requests[0].result;

	TL_ADD(batch, TL_NR_STORE, &batch->requests[0], TL_NR_STORE | (uint64_t)TL_SUBMITTED << 32);
	TL_ADD(batch, SYS_getppid);
	TL_ADD(batch, TL_NR_INCREASE | TL_WORD64(1), result_of_first, result_of_first);
	CHECK_EQ(tl_batch_jump(batch, 0, TL_IF_ALWAYS, 2), 0);
	CHECK_EQ(tl_batch_flush(batch), 3);
	CHECK_EQ(result(batch, 1), -ECANCELED);
	CHECK_EQ(result(batch, 2), 2 * (TL_NR_STORE | (int64_t)TL_SUBMITTED << 32));
	CHECK_EQ(result(batch, 0), result(batch, 2));
	tl_batch_destroy(batch);
}

static void budget_stops_a_loop_that_can_go_on(void)
{
	struct tl_batch *batch = batch_new(ENTRIES);
	struct tl_stats stats = { .size = sizeof(stats) };
	uint64_t count = 0;

	TL_ADD(batch, TL_NR_INCREASE, &count, 1);
	TL_ADD(batch, TL_NR_INCREASE, &count, 1);
	CHECK_EQ(tl_batch_jump(batch, 1, TL_IF_ALWAYS, 0), 0);
	CHECK_EQ(tl_batch_flush_steps(batch, 0), -ETIME);
	CHECK_EQ(count, 0);
	CHECK_EQ(tl_batch_flush_steps(batch, 7), -ETIME);
	CHECK_EQ(count, 7);
	CHECK_EQ(tl_batch_at(batch), 1);
	CHECK_EQ(tl_batch_queued(batch), 2);
	CHECK_EQ(tl_batch_flush_steps(batch, 4), -ETIME);
	CHECK_EQ(count, 11);
	/* A stopped program may be changed: this jump leads out of the loop. */
	CHECK_EQ(tl_batch_jump(batch, 1, TL_IF_ALWAYS, 2), 0);
	CHECK_EQ(tl_batch_flush(batch), 2);
	CHECK_EQ(count, 12);
	CHECK_EQ(tl_batch_at(batch), 0);

	/* The budget that nobody names; the module counts calls only, so the loop is of those. */
	TL_ADD(batch, SYS_getppid);
	CHECK_EQ(tl_batch_jump(batch, 0, TL_IF_ALWAYS, 0), 0);
	CHECK_EQ(tl_batch_flush(batch), -ETIME);
	CHECK_EQ(tl_batch_get_stats(batch, &stats), 0);
	CHECK_EQ(stats.executed, TL_STEPS_DEFAULT);
	tl_batch_destroy(batch);
}

static void flush_of_all_needs_no_budget(void)
{
	struct tl_batch *batch = batch_new(ENTRIES);
	uint64_t left = TL_STEPS_DEFAULT;

	TL_ADD(batch, TL_NR_INCREASE, &left, -1);
	CHECK_EQ(tl_batch_jump(batch, 0, TL_IF_POSITIVE, 0), 0);
	TL_ADD(batch, SYS_getppid);
	CHECK_EQ(tl_batch_flush_all(batch), 2);
	CHECK_EQ(left, 0);
	CHECK_EQ(result(batch, 1), getppid());
	tl_batch_destroy(batch);
}

static void unordered_batch_knows_no_programs(void)
{
	struct tl_batch *batch = batch_new_unordered(8);

	TL_ADD(batch, SYS_getppid);
	TL_ADD(batch, SYS_close | TL_RESULT(0), 0);
	CHECK_EQ(tl_batch_jump(batch, 0, TL_IF_ALWAYS, 2), -EINVAL);
	CHECK_EQ(tl_batch_flush_steps(batch, 0), 2);
	CHECK_EQ(result(batch, 0), getppid());
	CHECK_EQ(result(batch, 1), -ENOSYS);
	tl_batch_destroy(batch);
}

int main(void)
{
	whole_files_are_read_in_one_flush();
	words_of_32_bits_are_unsigned();
	wrong_requests_have_an_error();
	conditions_look_at_the_result();
	loop_copies_until_the_end_of_file();
	loop_keeps_its_results();
	step_may_rewrite_its_own_request();
	budget_stops_a_loop_that_can_go_on();
	flush_of_all_needs_no_budget();
	unordered_batch_knows_no_programs();
	return 0;
}
