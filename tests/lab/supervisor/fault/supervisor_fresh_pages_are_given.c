// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pages touched first in supervisor mode are given, zeroed, also where the write comes from the
 * kernel on a call's behalf; pages shared by fork are copied when one writes, and the other's
 * stay as they were.
 */
#include "supervisor.h"

#define PAGES 2000
#define PAGE 4096

static char *pages;

static char *fresh(void)
{
	char *start = MUST(mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));

	madvise(start, PAGES * PAGE, MADV_NOHUGEPAGE);	/* kernels without: -EINVAL */
	return start;
}

/* One write a page, each right after a call; returns how many were made in supervisor mode. */
static long write_each(char base)
{
	long inside = 0;

	for (long i = 0; i < PAGES; i++) {
		reach_supervisor();
		inside += cpl() == 0;
		pages[i * PAGE + 8] = (char)(base + i);
	}
	return inside;
}

static void check_each(char base)
{
	for (long i = 0; i < PAGES; i++) {
		CHECK_EQ(pages[i * PAGE + 8], (char)(base + i));
		CHECK_EQ(pages[i * PAGE + 9], 0);
	}
}

static void copy_on_write(void)
{
	enter_supervisor(0);
	check_each(1);
	CHECK_WITHIN(write_each(77), MOST(PAGES), PAGES);
	check_each(77);
}

/* The kernel writes to fresh pages for a call: that fault is no fault of user code. */
static void written_by_calls(void)
{
	int zero = MUST(open("/dev/zero", O_RDONLY));

	pages = fresh();
	for (long i = 0; i < PAGES; i++) {
		CHECK_EQ(sys(SYS_read, zero, pages + i * PAGE, 9), 9);
		CHECK_EQ(pages[i * PAGE + 8], 0);
	}
}

int main(void)
{
	struct tl_process before, after;

	enter_supervisor(0);
	pages = fresh();
	before = process_counts(getpid());
	CHECK_WITHIN(write_each(1), MOST(PAGES), PAGES);
	after = process_counts(getpid());
	CHECK_WITHIN(demoted(&before, &after, TL_DEMOTED_PAGE_FAULT), MOST(PAGES), PAGES + 100);
	check_each(1);
	CHECK_EXITED(child_run(copy_on_write), 0);
	check_each(1);
	write_each(50);		/* the copies that were shared are the parent's alone again */
	check_each(50);
	written_by_calls();
	return 0;
}
