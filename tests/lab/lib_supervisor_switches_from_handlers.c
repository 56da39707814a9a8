// SPDX-License-Identifier: GPL-2.0-only
/*
 * A signal handler may switch its process while the program does the same, and while the program
 * opens the descriptor: no call fails, errno stays, and the last word is kept.
 */
#include "lib_supervisor.h"

#define MIN_SIGNALS 200

static volatile sig_atomic_t signals, failures;

static void handler(int signal)
{
	(void)signal;
	signals++;
	if (signals & 1 ? switch_supervisor(0) : switch_user(0))
		failures++;
}

int main(void)
{
	uint64_t deadline = now_ms() + WAIT_MS;
	int fd = -1, rounds = 0;

	lib_supervisor_need();
	on_signal(SIGALRM, handler, SA_RESTART);
	alarm_ms(2, 2);
	errno = 4711;
	while (signals < MIN_SIGNALS && now_ms() < deadline) {
		CHECK_EQ(switch_supervisor(0), 0);
		CHECK_EQ(sys(SYS_getppid), getppid());
		CHECK_EQ(switch_user(0), 0);
		if (++rounds % 16)
			continue;
		CHECK_EQ(errno, 4711);
		CHECK(device_descriptors(&fd) >= 1);
		errno = 4711;
		close(fd);
	}
	alarm_ms(0, 0);
	CHECK(signals >= MIN_SIGNALS);
	CHECK_EQ(failures, 0);
	CHECK_EQ(switch_user(0), 0);
	CHECK_EQ(calls_inside(), 0);
	CHECK_EQ(switch_supervisor(0), 0);
	CHECK_WITHIN(calls_inside(), MOST_CALLS, CALLS);
	return 0;
}
