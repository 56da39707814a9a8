// SPDX-License-Identifier: GPL-2.0-only
/*
 * Parallel calls: every request is served once, several at a time; the requester is not blocked by
 * a slow one; waiting, refusing, filling up and shutting down do what they say.
 */
#include "lib_check.h"

#include <sys/mman.h>

#define ENTRIES 64u

static void every_request_is_served_once(unsigned int workers, unsigned int spin_us)
{
	struct tl_psc *psc = psc_new(ENTRIES, spin_us, workers);
	struct tl_stats stats = { .size = sizeof(stats) };
	int fd = MUST(memfd_create("psc", 0));
	char bytes[ENTRIES];
	int64_t result;

	memset(bytes, 'x', sizeof(bytes));
	for (unsigned int n = 1; n <= ENTRIES; n++) {
		unsigned int slots[ENTRIES];

		for (unsigned int i = 0; i < n; i++)
			slots[i] = (unsigned int)TL_PSC_ADD(psc, SYS_pwrite64, fd, bytes, i + 1, 0);
		CHECK_EQ(tl_psc_notify(psc), n);
		CHECK_EQ(tl_psc_notify(psc), 0);
		CHECK_EQ(tl_psc_wait(psc, 0), 0);
		for (unsigned int i = 0; i < n; i++) {
			CHECK_EQ(tl_psc_result(psc, slots[i], &result), 1);
			CHECK_EQ(result, i + 1);
			CHECK_EQ(tl_psc_result(psc, slots[i], &result), 0);
		}
	}
	CHECK_EQ(tl_psc_get_stats(psc, &stats), 0);
	CHECK_EQ(stats.executed, ENTRIES * (ENTRIES + 1) / 2);
	CHECK_EQ(stats.refused, 0);
	CHECK_EQ(stats.dropped, 0);
	tl_psc_destroy(psc);
	close(fd);
}

/* Who sees a result without waiting for it finds it counted. */
static void results_are_counted_when_they_show(void)
{
	struct tl_psc *psc = psc_new(ENTRIES, 20, 4);
	struct tl_stats stats = { .size = sizeof(stats) };
	int64_t result;

	for (unsigned int round = 1; round <= 500; round++) {
		unsigned int slots[ENTRIES];

		for (unsigned int i = 0; i < ENTRIES; i++)
			slots[i] = (unsigned int)TL_PSC_ADD(psc, SYS_getpid);
		CHECK_EQ(tl_psc_notify(psc), ENTRIES);
		for (unsigned int i = 0; i < ENTRIES; i++)
			while (!tl_psc_result(psc, slots[i], &result))
				;
		CHECK_EQ(tl_psc_get_stats(psc, &stats), 0);
		CHECK_EQ(stats.executed, round * ENTRIES);
	}
	tl_psc_destroy(psc);
}

static void slow_call_blocks_nobody(void)
{
	struct tl_psc *psc = psc_new(8, 0, 2);
	int slow, quick, pipes[2];
	int64_t result = 0;
	char byte = 0;

	MUST(pipe(pipes));
	slow = TL_PSC_ADD(psc, SYS_read, pipes[0], &byte, 1);
	CHECK_EQ(tl_psc_notify(psc), 1);
	quick = TL_PSC_ADD(psc, SYS_getpid);
	CHECK_EQ(tl_psc_wait(psc, 1), 1);
	CHECK_EQ(tl_psc_result(psc, (unsigned int)slow, &result), 0);
	CHECK_EQ(tl_psc_result(psc, (unsigned int)quick, &result), 1);
	CHECK_EQ(result, getpid());
	MUST(write(pipes[1], "z", 1));
	CHECK_EQ(tl_psc_wait(psc, 0), 0);
	CHECK_EQ(tl_psc_result(psc, (unsigned int)slow, &result), 1);
	CHECK_EQ(result, 1);
	CHECK_EQ(byte, 'z');
	tl_psc_destroy(psc);
	close(pipes[0]);
	close(pipes[1]);
}

static void slots_are_used_again(void)
{
	struct tl_psc *psc = psc_new(4, 0, 2);
	int64_t result;
	int slots[4];

	for (int round = 0; round < 1000; round++) {
		for (int i = 0; i < 4; i++)
			slots[i] = TL_PSC_ADD(psc, SYS_getpid);
		CHECK_EQ(TL_PSC_ADD(psc, SYS_getpid), -EAGAIN);
		CHECK_EQ(tl_psc_wait(psc, 0), 0);
		/* In another order than they were taken. */
		for (int i = 0; i < 4; i++)
			CHECK_EQ(tl_psc_result(psc, (unsigned int)slots[(round + 3 * i) % 4],
					       &result), 1);
	}
	CHECK_EQ(tl_psc_result(psc, 4, &result), -EINVAL);
	tl_psc_destroy(psc);
}

static void thread_local_calls_are_refused(void)
{
	struct tl_psc *psc = psc_new(8, 0, 1);
	int64_t result;

	TL_PSC_ADD(psc, SYS_setuid, getuid());
	TL_PSC_ADD(psc, SYS_execve, "/bin/true", NULL, NULL);
	TL_PSC_ADD(psc, 100000);
	CHECK_EQ(tl_psc_wait(psc, 0), 0);
	CHECK_EQ(tl_psc_result(psc, 0, &result), 1);
	CHECK_EQ(result, -EOPNOTSUPP);
	CHECK_EQ(tl_psc_result(psc, 1, &result), 1);
	CHECK_EQ(result, -EOPNOTSUPP);
	CHECK_EQ(tl_psc_result(psc, 2, &result), 1);
	CHECK_EQ(result, -ENOSYS);
	tl_psc_destroy(psc);
}

static void bad_arguments_are_refused(void)
{
	struct tl_psc *psc = NULL;
	int64_t result;
	int slot = 0;

	CHECK_EQ(tl_psc_create(&psc, 0, 0, 0), -EINVAL);
	CHECK_EQ(tl_psc_create(&psc, 2 * TL_ENTRIES_MAX, 0, 0), -EINVAL);
	CHECK_EQ(tl_psc_create(&psc, 8, TL_SPIN_US_MAX + 1, 0), -EINVAL);
	tl_psc_destroy(NULL);
	/* Rounded up to 8; a slot that is an error gives that error. */
	CHECK_EQ(tl_psc_create(&psc, 5, 0, LIB_FLAGS), 0);
	for (int i = 0; i < 8; i++)
		CHECK((slot = TL_PSC_ADD(psc, SYS_getppid)) >= 0);
	slot = TL_PSC_ADD(psc, SYS_getppid);
	CHECK_EQ(slot, -EAGAIN);
	CHECK_EQ(tl_psc_result(psc, (unsigned int)slot, &result), -EAGAIN);
	CHECK_EQ(tl_psc_cancel(psc, (unsigned int)slot), -EAGAIN);
	CHECK_EQ(tl_psc_set_data(psc, (unsigned int)slot, 1), -EAGAIN);
	CHECK_EQ(tl_psc_result(psc, 8, &result), -EINVAL);
	tl_psc_destroy(psc);
}

int main(void)
{
	every_request_is_served_once(1, 0);
	every_request_is_served_once(3, 0);
	every_request_is_served_once(3, 20);
	results_are_counted_when_they_show();
	slow_call_blocks_nobody();
	slots_are_used_again();
	thread_local_calls_are_refused();
	bad_arguments_are_refused();
	return 0;
}
