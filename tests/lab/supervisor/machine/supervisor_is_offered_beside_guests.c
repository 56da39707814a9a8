// SPDX-License-Identifier: GPL-2.0-only
/*
 * The module is loaded while virtual machines run: a guest's value is then in MSR_LSTAR of
 * whichever CPU looks, until the next return to user mode. Supervisor mode is offered all the same,
 * on every CPU. guests.ko stands for KVM, which leaves such values on processors that the lab does
 * not have.
 */
#include "module.h"
#include "supervisor.h"

#define GUESTS_FILE "/guests.ko"
#define ROUNDS 3

static void on_each_cpu(void)
{
	int cpus = (int)sysconf(_SC_NPROCESSORS_ONLN);

	CHECK_EQ(supervisor_info().refusals, 0);
	enter_supervisor(0);
	for (int cpu = 0; cpu < cpus; cpu++) {
		pin_to_cpu(cpu);
		reach_supervisor();
	}
}

int main(void)
{
	int guests = open(GUESTS_FILE, O_RDONLY | O_CLOEXEC);

	if (guests < 0)
		SKIP("no %s: %s", GUESTS_FILE, strerror(errno));
	module_need();
	CHECK_CHILD(child_run(supervisor_need));
	for (int round = 0; round < ROUNDS; round++) {
		if (sys(SYS_finit_module, guests, "", 0) < 0)
			SKIP("%s cannot be loaded here", GUESTS_FILE);
		module_reload();
		CHECK_EQ(sys(SYS_delete_module, "guests", 0), 0);
		CHECK_CHILD(child_run(on_each_cpu));
	}
	return 0;
}
