// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory is short around a process in supervisor mode: its pages are taken, moved and given back
 * under it, its group is at its limit, and when that is passed it alone is killed, by a page fault
 * of user code at level 0. TL_SWITCH_RESIDENT locks its memory, or says why it could not.
 */
#include <sys/resource.h>

#include "cgroup.h"
#include "workload.h"

#define LIMIT "25165824"		/* bytes */
#define BEYOND (64 << 20)
#define RUNNERS 3
#define ROUNDS 12

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif

static void grow_beyond_the_limit(void)
{
	char *memory = MUST(mmap(NULL, BEYOND, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));

	cgroup_enter();
	enter_supervisor(0);
	for (long i = 0; i < BEYOND; i += 4096) {
		sys(SYS_getppid);
		memory[i] = 1;
	}
	FAIL("nobody minded %d bytes over a limit of " LIMIT, BEYOND);
}

/* A file's pages in a group that is at its limit are thrown out and read again. */
static void reread_at_the_limit(void)
{
	volatile char *memory = MUST(mmap(NULL, 20 << 20, PROT_READ | PROT_WRITE,
					  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	long sum = 0;

	cgroup_enter();
	enter_supervisor(0);
	for (int round = 0; round < 5; round++) {
		for (long i = 0; i < 20 << 20; i += 4096) {
			sys(SYS_getppid);
			memory[i] = (char)(i >> 12);
		}
		madvise((void *)memory, 20 << 20, MADV_PAGEOUT);
		for (long i = 0; i < 20 << 20; i += 4096) {
			sys(SYS_getppid);
			sum += memory[i] == (char)(i >> 12);
		}
		MUST(madvise((void *)memory, 20 << 20, MADV_DONTNEED));
	}
	CHECK_EQ(sum, 5 * (20 << 20) / 4096);
}

/* The kernel looks for pages to take, and moves what it cannot. */
static void press(void)
{
	write_file("/proc/sys/vm/drop_caches", "3");
	write_file("/proc/sys/vm/compact_memory", "1");
}

static long locked_kb(void)
{
	char text[4096], *line;

	CHECK(read_file("/proc/self/status", text, sizeof(text)) > 0);
	line = strstr(text, "VmLck:");
	CHECK(line);
	return atol(line + 6);
}

static void resident(void)
{
	struct rlimit none = { 0, 0 };

	enter_supervisor(TL_SWITCH_RESIDENT);
	CHECK_EQ(process_counts(getpid()).resident, 1);
	CHECK(locked_kb() > 100);
	enter_user();
	CHECK_EQ(locked_kb(), 0);
	CHECK_EQ(switch_mode(0, TL_MODE_SUPERVISOR, 0), 0);
	reach_supervisor();
	CHECK_EQ(process_counts(getpid()).resident, 0);
	CHECK_EQ(locked_kb(), 0);
	MUST(setrlimit(RLIMIT_MEMLOCK, &none));
}

int main(void)
{
	struct workload *workload = shared_memory(sizeof(*workload));
	pid_t pids[RUNNERS];

	supervisor_need();
	CHECK_EXITED(child_run(resident), 0);
	workload_start(workload, pids, RUNNERS, RUNNERS);
	for (int i = 0; i < ROUNDS; i++) {
		press();
		workload_progress(workload, RUNNERS, 1);
	}
	workload_inside(workload, RUNNERS);
	cgroup_make(LIMIT);
	CHECK_EXITED(child_run(reread_at_the_limit), 0);
	for (int i = 0; i < 3; i++)
		CHECK_KILLED(child_run(grow_beyond_the_limit), SIGKILL);
	workload_inside(workload, RUNNERS);
	workload_end(workload, pids, RUNNERS);
	cgroup_remove();
	return 0;
}
