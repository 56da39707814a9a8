// SPDX-License-Identifier: GPL-2.0-only
/*
 * The machine is suspended and comes back, as far as each of the kernel's test levels goes, the
 * last with one CPU and interrupts off; by a process in user mode and by one in supervisor mode,
 * beside others in either. All are in the mode they were in. (To wake from real sleep is a reset,
 * at which a VM of the lab ends.)
 */
#include "workload.h"

#define STATE "/sys/power/state"
#define MEM_SLEEP "/sys/power/mem_sleep"
#define PM_TEST "/sys/power/pm_test"
#define TEST_DELAY "/sys/module/suspend/parameters/pm_test_delay"
#define RUNNERS 4
#define SWITCHED 3

static const char *level;

static bool offers(const char *path, const char *word)
{
	char text[256];

	return read_file(path, text, sizeof(text)) > 0 && strstr(text, word);
}

static void suspend(void)
{
	long result = write_file(STATE, "mem");

	if (result != 3)
		FAIL("level %s: suspend failed: %s", level, strerror((int)-result));
}

static void suspend_switched(void)
{
	enter_supervisor(0);
	suspend();
	reach_supervisor();
}

static void suspend_at(const struct workload *workload, const char *which)
{
	level = which;
	CHECK(write_file(PM_TEST, which) > 0);
	CHECK_EXITED(child_run(suspend), 0);
	workload_progress(workload, RUNNERS, 5);
	CHECK_EXITED(child_run(suspend_switched), 0);
	workload_progress(workload, RUNNERS, 5);
	workload_inside(workload, SWITCHED);
}

int main(void)
{
	static const char *const levels[] = {
		"freezer", "devices", "platform", "processors", "core",
	};
	struct workload *workload = shared_memory(sizeof(*workload));
	pid_t pids[RUNNERS];

	supervisor_need();
	if (!offers(STATE, "mem") || !offers(PM_TEST, "core"))
		SKIP("this kernel cannot suspend or test it");
	write_file(TEST_DELAY, "0");
	if (offers(MEM_SLEEP, "deep"))
		CHECK(write_file(MEM_SLEEP, "deep") > 0);
	workload_start(workload, pids, RUNNERS, SWITCHED);
	workload_progress(workload, RUNNERS, 5);
	for (size_t i = 0; i < sizeof(levels) / sizeof(*levels); i++)
		suspend_at(workload, levels[i]);
	workload_end(workload, pids, RUNNERS);
	return 0;
}
