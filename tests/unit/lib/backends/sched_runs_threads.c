// SPDX-License-Identifier: GPL-2.0-only
/*
 * Fine-grained threads run to completion, oldest first, once all their synchronisations have come,
 * from calls or from other threads; they cost no allocation once the pool is warm.
 */
#include "lib_check.h"

#include <malloc.h>
#include <sys/resource.h>

static char trace[64];
static struct tl_thread *waiter;

static void note(struct tl_thread *self, void *arg)
{
	(void)self;
	strcat(trace, arg);
}

static void oldest_runs_first(void)
{
	struct tl_sched *sched = sched_new(0, 0, 0);

	trace[0] = '\0';
	CHECK_EQ(tl_thread_create(sched, NULL, note, "a", 0), 0);
	CHECK_EQ(tl_thread_create(sched, NULL, note, "b", 0), 0);
	CHECK_EQ(tl_thread_create(sched, NULL, note, "c", 0), 0);
	CHECK_EQ(tl_sched_run(sched), 0);
	CHECK_EQ(strcmp(trace, "abc"), 0);
	tl_sched_destroy(sched);
}

static void synchroniser(struct tl_thread *self, void *arg)
{
	note(self, arg);
	CHECK_EQ(tl_thread_sync(waiter), 0);
}

static void thread_waits_for_all_its_syncs(void)
{
	struct tl_sched *sched = sched_new(0, 0, 0);

	trace[0] = '\0';
	CHECK_EQ(tl_thread_create(sched, &waiter, note, "w", 2), 0);
	CHECK_EQ(tl_sched_run(sched), 0);
	CHECK_EQ(strcmp(trace, ""), 0);
	CHECK(tl_thread_sched(waiter) == sched);
	tl_thread_create(sched, NULL, synchroniser, "1", 0);
	CHECK_EQ(tl_sched_run(sched), 0);
	CHECK_EQ(strcmp(trace, "1"), 0);
	tl_thread_create(sched, NULL, synchroniser, "2", 0);
	tl_thread_create(sched, NULL, note, "n", 0);
	CHECK_EQ(tl_sched_run(sched), 0);
	CHECK_EQ(strcmp(trace, "12nw"), 0);
	tl_sched_destroy(sched);
}

static void sync_beyond_the_count_is_einval(void)
{
	struct tl_sched *sched = sched_new(0, 0, 0);
	int64_t result = 0;

	trace[0] = '\0';
	tl_thread_create(sched, &waiter, note, "w", 1);
	CHECK_EQ(TL_CALL(sched, waiter, &result, SYS_getppid), 0);
	/* The queued call will deliver the only one there is. */
	CHECK_EQ(tl_thread_sync(waiter), -EINVAL);
	CHECK_EQ(TL_CALL(sched, waiter, &result, SYS_getppid), -EINVAL);
	CHECK_EQ(tl_sched_run(sched), 0);
	CHECK_EQ(result, getppid());
	CHECK_EQ(strcmp(trace, "w"), 0);
	tl_sched_destroy(sched);
}

/* open, read, close: three phases of one piece of work, each a thread. */
struct copy {
	int64_t fd, length, closed;
	char text[32];
};

static void copy_done(struct tl_thread *self, void *arg)
{
	struct copy *copy = arg;

	(void)self;
	CHECK_EQ(copy->closed, 0);
	strcat(trace, "done");
}

static void copy_close(struct tl_thread *self, void *arg)
{
	struct tl_sched *sched = tl_thread_sched(self);
	struct copy *copy = arg;
	struct tl_thread *next;

	CHECK(copy->length > 0);
	CHECK_EQ(tl_thread_create(sched, &next, copy_done, copy, 1), 0);
	CHECK_EQ(TL_CALL(sched, next, &copy->closed, SYS_close, copy->fd), 0);
}

static void copy_read(struct tl_thread *self, void *arg)
{
	struct tl_sched *sched = tl_thread_sched(self);
	struct copy *copy = arg;
	struct tl_thread *next;

	CHECK(copy->fd >= 0);
	CHECK_EQ(tl_thread_create(sched, &next, copy_close, copy, 1), 0);
	CHECK_EQ(TL_CALL(sched, next, &copy->length, SYS_read, copy->fd, copy->text,
		      sizeof(copy->text)), 0);
}

static void continuations_carry_results_on(void)
{
	struct tl_sched *sched = sched_new(0, 0, 0);
	struct copy copy = { .closed = -1 };
	struct tl_thread *next;
	struct tl_sched_stats stats;

	trace[0] = '\0';
	CHECK_EQ(tl_thread_create(sched, &next, copy_read, &copy, 1), 0);
	CHECK_EQ(TL_CALL(sched, next, &copy.fd, SYS_openat, AT_FDCWD, "/proc/self/stat", 0), 0);
	CHECK_EQ(tl_sched_run(sched), 0);
	CHECK_EQ(atoi(copy.text), getpid());
	CHECK_EQ(strcmp(trace, "done"), 0);
	stats = sched_stats(sched);
	CHECK_EQ(stats.calls, 3);
	CHECK_EQ(stats.threads_run, 3);
	tl_sched_destroy(sched);
}

static unsigned int generations;

static void reborn(struct tl_thread *self, void *arg)
{
	static int64_t result;
	struct tl_thread *next;

	if (!generations--)
		return;
	CHECK_EQ(tl_thread_create(tl_thread_sched(self), &next, reborn, arg, 1), 0);
	CHECK_EQ(TL_CALL(tl_thread_sched(self), next, &result, SYS_getppid), 0);
}

static void steady_state_allocates_nothing(void)
{
	struct tl_sched *sched = sched_new(0, 0, 0);
	size_t before;

	generations = 10;
	tl_thread_create(sched, NULL, reborn, NULL, 0);
	CHECK_EQ(tl_sched_run(sched), 0);
	before = mallinfo2().uordblks;
	generations = 10000;
	tl_thread_create(sched, NULL, reborn, NULL, 0);
	CHECK_EQ(tl_sched_run(sched), 0);
	CHECK_EQ(mallinfo2().uordblks, before);
	CHECK_EQ(sched_stats(sched).calls, 10010);
	tl_sched_destroy(sched);
}

static void run_again(struct tl_thread *self, void *arg)
{
	(void)arg;
	CHECK_EQ(tl_sched_run(tl_thread_sched(self)), -EDEADLK);
}

static void bad_arguments_are_refused(void)
{
	struct tl_sched_config config = { .size = sizeof(config) };
	struct tl_sched *sched;

	config.size = 4;
	CHECK_EQ(tl_sched_create(&sched, &config), -EINVAL);
	config.size = sizeof(config);
	config.flush_at = TL_ENTRIES_MAX + 1;
	CHECK_EQ(tl_sched_create(&sched, &config), -EINVAL);
	config.flush_at = 64;
	config.entries = 32;
	CHECK_EQ(tl_sched_create(&sched, &config), -EINVAL);
	config.entries = UINT32_MAX;
	CHECK_EQ(tl_sched_create(&sched, &config), -EINVAL);
	config.entries = 65;	/* rounded up */
	CHECK_EQ(tl_sched_create(&sched, &config), 0);
	CHECK_EQ(tl_sched_reserve(sched, 128), 0);
	CHECK_EQ(tl_sched_reserve(sched, 129), -EINVAL);
	tl_sched_destroy(sched);
	config.entries = 64;
	CHECK_EQ(tl_sched_create(&sched, &config), 0);
	tl_thread_create(sched, NULL, run_again, NULL, 0);
	CHECK_EQ(tl_sched_run(sched), 0);
	tl_sched_destroy(sched);
	tl_sched_destroy(NULL);
}

/* Programs and libraries of different releases: more fields than are known here must be 0. */
static void config_of_another_release_is_read(void)
{
	struct {
		struct tl_sched_config known;
		uint64_t later;
	} config = { .known = { .size = sizeof(config), .flags = LIB_FLAGS } };
	struct tl_sched *sched;

	CHECK_EQ(tl_sched_create(&sched, &config.known), 0);
	tl_sched_destroy(sched);
	config.later = 1;
	CHECK_EQ(tl_sched_create(&sched, &config.known), -E2BIG);
	config.known.size = sizeof(config.known);
	CHECK_EQ(tl_sched_create(&sched, &config.known), 0);
	tl_sched_destroy(sched);
	config.known.size = UINT32_MAX;
	CHECK_EQ(tl_sched_create(&sched, &config.known), -E2BIG);
}

/* A file is opened, read and closed by three linked calls, which take one another's results. */
static void programs_run_among_other_calls(void)
{
	static const char *const paths[] = { "/proc/self/stat", "/nowhere" };
	struct tl_sched *sched = sched_new(8, 8, 0);
	int64_t files[4], lengths[4], parent;
	char text[32];

	for (int i = 0; i < 4; i++) {
		int slot = tl_sched_reserve(sched, 3);

		CHECK(slot >= 0);
		CHECK_EQ(TL_CALL(sched, NULL, &files[i], SYS_openat, AT_FDCWD,
				 paths[i & 1], 0), 0);
		CHECK_EQ(TL_CALL(sched, NULL, &lengths[i], SYS_read | TL_RESULT(0), slot, text,
				 sizeof(text)), 0);
		CHECK_EQ(TL_CALL(sched, NULL, NULL, SYS_close | TL_RESULT(0), slot), 0);
		CHECK_EQ(tl_sched_jump(sched, (unsigned int)slot + 1, TL_IF_ERROR,
				       (unsigned int)slot + 3), 0);
		CHECK_EQ(TL_CALL(sched, NULL, &parent, SYS_getppid), 0);
	}
	CHECK_EQ(tl_sched_run(sched), 0);
	CHECK_EQ(parent, getppid());
	CHECK_EQ(files[0], files[2]);
	CHECK_EQ(lengths[2], sizeof(text));
	CHECK_EQ(files[1], -ENOENT);
	CHECK_EQ(lengths[3], -ECANCELED);
	CHECK_EQ(sched_stats(sched).calls, 16);
	CHECK_EQ(tl_sched_reserve(sched, 9), -EINVAL);
	tl_sched_destroy(sched);
}

static void run_out_of_memory(void)
{
	struct tl_sched *sched = sched_new(0, 0, 0);
	const struct rlimit nothing = { 0, 0 };
	int result;

	MUST(setrlimit(RLIMIT_AS, &nothing));
	errno = EXDEV;
	do {
		result = tl_thread_create(sched, NULL, note, "", 0);
	} while (!result);
	CHECK_EQ(result, -ENOMEM);
	CHECK_EQ(errno, EXDEV);
	tl_sched_destroy(sched);
}

static void lack_of_memory_is_told_without_errno(void)
{
#ifndef __SANITIZE_ADDRESS__ /* it must grow its own memory beside ours */
	CHECK_EXITED(child_run(run_out_of_memory), 0);
#else
	(void)run_out_of_memory;
#endif
}

int main(void)
{
	oldest_runs_first();
	thread_waits_for_all_its_syncs();
	sync_beyond_the_count_is_einval();
	continuations_carry_results_on();
	steady_state_allocates_nothing();
	bad_arguments_are_refused();
	programs_run_among_other_calls();
	config_of_another_release_is_read();
	lack_of_memory_is_told_without_errno();
	return 0;
}
