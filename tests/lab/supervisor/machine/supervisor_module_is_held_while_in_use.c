// SPDX-License-Identifier: GPL-2.0-only
/*
 * The module cannot be unloaded while a process is in supervisor mode, or about to be; once all
 * are back or gone it can, though they were running in it a moment before. Loaded, used by several
 * threads and unloaded many times, it leaves no trace.
 */
#include "module.h"
#include "supervisor.h"

#define CYCLES 12		/* TL_CYCLES overrides */
#define THREADS 3

static volatile bool *hold;

static void *call_on(void *unused)
{
	(void)unused;
	while (*hold)
		sys(SYS_getppid);
	return NULL;
}

/* Switches itself and closes the device: what holds the module now is the switch alone. */
static void use(void)
{
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, call_on, NULL), 0);
	enter_supervisor(0);
	CHECK_EQ(sys(SYS_close, supervisor_fd()), 0);
	call_on(NULL);
	for (int i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
}

int main(void)
{
	int cycles;

	module_need();
	CHECK_CHILD(child_run(supervisor_need));
	cycles = getenv("TL_CYCLES") ? atoi(getenv("TL_CYCLES")) : CYCLES;
	hold = shared_memory(sizeof(*hold));
	for (int cycle = 0; cycle < cycles; cycle++) {
		pid_t pid;

		*hold = true;
		pid = child_start(use);
		while (module_references() <= THREADS)
			sched_yield();
		CHECK_EQ(module_unload(), -EAGAIN);
		if (cycle % 3 == 0)
			MUST(kill(pid, SIGKILL));
		*hold = false;
		if (cycle % 2)
			child_wait(pid);
		module_reload();
		if (cycle % 2 == 0)
			child_wait(pid);
	}
	return 0;
}
