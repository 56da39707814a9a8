// SPDX-License-Identifier: GPL-2.0-only
/*
 * A process that knows nothing of it is switched to supervisor mode and back by its parent, at most
 * one call late: the next but one call after the switch already comes back in the new mode, but for
 * interrupts, which are few.
 */
#include "lib_supervisor.h"

#define SWITCHES 50
#define MOST_SWITCHES 45

struct shared {
	_Atomic uint64_t calls;
	_Atomic uint64_t inside;
};

static struct shared *shared;

static void make_calls(void)
{
	for (;;) {
		unsigned int cs;

		sys(SYS_getppid);
		__asm__ volatile("mov %%cs, %0" : "=r"(cs));
		if (!(cs & 3))
			shared->inside++;
		shared->calls++;
	}
}

/* Waits for n more calls of the child; returns how many of these were in supervisor mode. */
static uint64_t wait_calls(uint64_t n)
{
	uint64_t calls = shared->calls, inside = shared->inside, deadline = now_ms() + WAIT_MS;

	while (shared->calls < calls + n) {
		CHECK(now_ms() < deadline);
		sched_yield();
	}
	return shared->inside - inside;
}

int main(void)
{
	int in_time = 0;
	pid_t child;

	lib_supervisor_need();
	shared = shared_memory(sizeof(*shared));
	child = child_start(make_calls);
	for (int i = 0; i < SWITCHES; i++) {
		CHECK_EQ(tl_switch_supervisor(child), 0);
		wait_calls(2);
		in_time += wait_calls(2) > 0;
		CHECK_EQ(tl_switch_user(child), 0);
		wait_calls(2);
		CHECK_EQ(wait_calls(20), 0);
	}
	CHECK_WITHIN(in_time, MOST_SWITCHES, SWITCHES);
	MUST(kill(child, SIGKILL));
	CHECK_KILLED(child_wait(child), SIGKILL);
	CHECK_EQ(tl_switch_supervisor(child), -ESRCH);
	return 0;
}
