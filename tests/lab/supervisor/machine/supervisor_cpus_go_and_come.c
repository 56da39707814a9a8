// SPDX-License-Identifier: GPL-2.0-only
/*
 * CPUs are taken offline and brought back while processes in supervisor mode run on them: the
 * processes move, and are in supervisor mode on a CPU that came back, too. So it is for one that
 * came while the module was loaded already.
 */
#include "workload.h"

#define CPU1 "/sys/devices/system/cpu/cpu1/online"
#define ROUNDS 12
#define RUNNERS 4
#define SWITCHED 3

/* Whether a process of its own gets into supervisor mode on that CPU. */
static void on_cpu_1(void)
{
	cpu_set_t set;
	unsigned int cpu;

	CPU_ZERO(&set);
	CPU_SET(1, &set);
	MUST(sched_setaffinity(0, sizeof(set), &set));
	enter_supervisor(0);
	CHECK_EQ(sys(SYS_getcpu, &cpu, NULL, NULL), 0);
	CHECK_EQ(cpu, 1);
	reach_supervisor();
}

int main(void)
{
	struct workload *workload = shared_memory(sizeof(*workload));
	pid_t pids[RUNNERS];

	supervisor_need();
	if (access(CPU1, W_OK) < 0)
		SKIP("no second CPU that can go offline");
	workload_start(workload, pids, RUNNERS, SWITCHED);
	workload_progress(workload, RUNNERS, 10);
	for (int round = 0; round < ROUNDS; round++) {
		CHECK_EQ(write_file(CPU1, "0"), 1);
		workload_progress(workload, RUNNERS, 5);
		workload_inside(workload, SWITCHED);
		CHECK_EQ(write_file(CPU1, "1"), 1);
		workload_progress(workload, RUNNERS, 5);
		CHECK_EXITED(child_run(on_cpu_1), 0);
	}
	workload_inside(workload, SWITCHED);
	workload_end(workload, pids, RUNNERS);
	return 0;
}
