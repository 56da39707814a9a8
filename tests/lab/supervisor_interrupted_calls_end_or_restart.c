/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A call that sleeps in supervisor mode and gets a signal ends with EINTR, or, with SA_RESTART, is
 * made again with the same arguments; calls that carry on by restart_syscall() do so; one without
 * a handler ends the process, and one that is ignored does not wake it.
 */
#include "supervisor.h"

static int pipe_ends[2];
static volatile sig_atomic_t handled;

static void handle(int signal)
{
	(void)signal;
	handled++;
}

/* read() of an empty pipe, begun in supervisor mode, with a signal after 30 ms. */
static long read_interrupted(char *byte)
{
	handled = 0;
	alarm_ms(30, 0);
	reach_supervisor();
	return sys(SYS_read, pipe_ends[0], byte, 1);
}

static void write_later(void)
{
	sleep_ms(120);
	CHECK_EQ(sys(SYS_write, pipe_ends[1], "x", 1), 1);
}

static void die_in_read(void)
{
	char byte;

	enter_supervisor(0);
	on_signal(SIGALRM, SIG_DFL, 0);
	read_interrupted(&byte);
}

/* nanosleep() stopped and continued goes on by restart_syscall() for what is left. */
static void stopped_sleep(void)
{
	struct timespec time = { .tv_nsec = 200000000 };
	pid_t parent = getpid(), child;
	uint64_t begin = now_ms();

	child = MUST(fork());
	if (child == 0) {
		sleep_ms(50);
		kill(parent, SIGSTOP);
		sleep_ms(30);
		kill(parent, SIGCONT);
		_exit(0);
	}
	reach_supervisor();
	CHECK_EQ(sys(SYS_nanosleep, &time, NULL), 0);
	CHECK_WITHIN(now_ms() - begin, 200, 2000);
	CHECK_EXITED(child_wait(child), 0);
}

int main(void)
{
	char byte = 0;
	pid_t child;

	MUST(pipe(pipe_ends));
	enter_supervisor(0);
	for (int i = 0; i < 10; i++) {
		on_signal(SIGALRM, handle, 0);
		CHECK_EQ(read_interrupted(&byte), -EINTR);
		CHECK_EQ(handled, 1);

		on_signal(SIGALRM, handle, SA_RESTART);
		child = child_start(write_later);
		CHECK_EQ(read_interrupted(&byte), 1);
		CHECK_EQ(handled, 1);
		CHECK_EQ(byte, 'x');
		CHECK_EXITED(child_wait(child), 0);

		on_signal(SIGALRM, SIG_IGN, 0);
		child = child_start(write_later);
		CHECK_EQ(read_interrupted(&byte), 1);
		CHECK_EXITED(child_wait(child), 0);
	}
	CHECK_KILLED(child_run(die_in_read), SIGALRM);
	stopped_sleep();
	reach_supervisor();
	return 0;
}
