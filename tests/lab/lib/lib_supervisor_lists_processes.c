// SPDX-License-Identifier: GPL-2.0-only
/*
 * tl_process_list() lists each switched process once and the ended ones together, fills in no more
 * entries than it is given, and serves callers whose structure is shorter or longer than its own.
 */
#include <stddef.h>

#include "lib_supervisor.h"

#define CHILDREN 3
#define SHORT_BYTES offsetof(struct tl_process, calls_direct)
#define MARK 0x5a

struct longer {
	struct tl_process process;
	unsigned char more[40];
};

static pid_t children[CHILDREN];

static void wait_for_end(void)
{
	pause();
}

static bool is_child(pid_t pid)
{
	for (int i = 0; i < CHILDREN; i++)
		if (children[i] == pid)
			return true;
	return false;
}

static void check_whole_list(void)
{
	struct tl_process list[CHILDREN + 2];

	memset(list, MARK, sizeof(list));
	CHECK_EQ(tl_process_list(list, CHILDREN + 2), CHILDREN + 1);
	for (int i = 0; i < CHILDREN; i++) {
		CHECK(is_child(list[i].pid));
		for (int other = 0; other < i; other++)
			CHECK(list[other].pid != list[i].pid);
		CHECK_EQ(list[i].mode, TL_MODE_SUPERVISOR);
		CHECK_EQ(list[i].threads, 1);
		CHECK_EQ(list[i].switches, 1);
	}
	CHECK_EQ(list[CHILDREN].pid, 0);
	CHECK_EQ(((unsigned char *)&list[CHILDREN + 1])[0], MARK);
}

static void check_short_lists(void)
{
	struct tl_process list[2];
	struct longer longer[2];

	CHECK_EQ(tl_process_list(NULL, 0), CHILDREN + 1);
	CHECK_EQ(tl_process_list(NULL, 1), -EFAULT);
	memset(list, MARK, sizeof(list));
	CHECK_EQ(tl_process_list(list, 1), CHILDREN + 1);
	CHECK(is_child(list[0].pid));
	CHECK_EQ(*(unsigned char *)&list[1], MARK);

	memset(list, MARK, sizeof(list));
	CHECK_EQ(tl_process_list_sized(list, 1, SHORT_BYTES), CHILDREN + 1);
	CHECK(is_child(list[0].pid));
	CHECK_EQ(((unsigned char *)list)[SHORT_BYTES], MARK);

	memset(longer, MARK, sizeof(longer));
	CHECK_EQ(tl_process_list_sized(&longer[0].process, 2, sizeof(longer[0])), CHILDREN + 1);
	CHECK(is_child(longer[0].process.pid) && is_child(longer[1].process.pid));
	CHECK_EQ(longer[0].more[0], MARK);
	CHECK_EQ(tl_process_list_sized(list, 1, 0), -EINVAL);
}

static void check_short_info(void)
{
	struct tl_supervisor info;

	memset(&info, MARK, sizeof(info));
	info.size = 8;
	CHECK_EQ(tl_supervisor_get(&info), 0);
	CHECK_EQ(info.size, 8);
	CHECK_EQ(info.processes, CHILDREN);
	CHECK_EQ(*(unsigned char *)&info.refusals, MARK);
	info.size = 3;
	CHECK_EQ(tl_supervisor_get(&info), -EINVAL);
}

int main(void)
{
	lib_supervisor_need();
	CHECK_EQ(tl_process_list(NULL, 0), 1);
	for (int i = 0; i < CHILDREN; i++) {
		children[i] = child_start(wait_for_end);
		CHECK_EQ(tl_switch_supervisor(children[i]), 0);
	}
	check_whole_list();
	check_short_lists();
	check_short_info();
	for (int i = 0; i < CHILDREN; i++) {
		MUST(kill(children[i], SIGKILL));
		CHECK_KILLED(child_wait(children[i]), SIGKILL);
	}
	CHECK_EQ(tl_process_list(NULL, 0), 1);
	return 0;
}
