// SPDX-License-Identifier: GPL-2.0-only
/*
 * Every call of a switched process is counted once, whichever way it goes: made by the module,
 * handed to the kernel, or ended by a signal.
 */
#include "supervisor.h"

#define ROUNDS 5000

/* Calls made between two readings, the one that reads among them. */
static uint64_t counted(struct tl_process *before)
{
	struct tl_process after = process_counts(before->pid);
	uint64_t calls = calls_of(&after) - calls_of(before);

	*before = after;
	return calls;
}

int main(void)
{
	struct tl_process before;
	pid_t pid = getpid();

	on_signal(SIGUSR1, count_signal, 0);
	enter_supervisor(0);
	before = process_counts(pid);
	CHECK_EQ(counted(&before), 1);

	for (int i = 0; i < ROUNDS; i++)
		sys(SYS_getpid);
	CHECK_EQ(counted(&before), ROUNDS + 1);

	for (int i = 0; i < ROUNDS; i++)
		sys(SYS_lseek, -1, 0, 0);	/* fails */
	CHECK_EQ(counted(&before), ROUNDS + 1);

	for (int i = 0; i < ROUNDS; i++)
		sys(SYS_sched_yield);		/* may switch to another thread */
	CHECK_EQ(counted(&before), ROUNDS + 1);

	for (int i = 0; i < ROUNDS; i++)
		sys(512 + i);			/* no such call */
	CHECK_EQ(counted(&before), ROUNDS + 1);

	for (int i = 0; i < 200; i++)		/* the handler returns by a call of its own */
		sys(SYS_kill, before.pid, SIGUSR1);
	CHECK_EQ(counted(&before), 2 * 200 + 1);
	return 0;
}
