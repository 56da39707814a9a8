// SPDX-License-Identifier: GPL-2.0-only
/*
 * A call that sleeps in supervisor mode and gets a signal ends with EINTR, or, with SA_RESTART, is
 * made again with the same arguments; calls that carry on by restart_syscall() do so; one without
 * a handler ends the process, and one that is ignored does not wake it.
 */
#include "supervisor.h"

static int pipe_ends[2];
static volatile int *times_handled;

static void handle(int signal)
{
	(void)signal;
	++*times_handled;
}

/*
 * A child that sends the caller SIGALRM once it sleeps in its read; if it is to, it writes a byte
 * when the signal has been handled so often and the caller sleeps again.
 */
static pid_t disturb_reader(bool write_too, int times)
{
	pid_t reader = getpid(), pid = MUST(fork());

	if (pid)
		return pid;
	wait_asleep(reader);
	MUST(kill(reader, SIGALRM));
	if (write_too) {
		while (*times_handled < times)
			sched_yield();
		wait_asleep(reader);
		CHECK_EQ(sys(SYS_write, pipe_ends[1], "x", 1), 1);
	}
	_exit(0);
}

/* read() of an empty pipe, begun in supervisor mode. */
static long read_disturbed(char *byte, bool write_too, int times)
{
	pid_t child;
	long result;

	*times_handled = 0;
	child = disturb_reader(write_too, times);
	while (cpl())		/* not reach_supervisor(), which may nap: the child would wake it */
		sys(SYS_getppid);
	result = sys(SYS_read, pipe_ends[0], byte, 1);
	CHECK_EXITED(child_wait(child), 0);
	return result;
}

static void die_in_read(void)
{
	char byte;

	enter_supervisor(0);
	on_signal(SIGALRM, SIG_DFL, 0);
	sys(SYS_read, pipe_ends[0], &byte, 1);
}

/* nanosleep() stopped and continued goes on by restart_syscall() for what is left. */
static void stopped_sleep(void)
{
	struct timespec time = { .tv_nsec = 200000000 };
	pid_t parent = getpid(), child;
	uint64_t begin = now_ms();

	child = MUST(fork());
	if (child == 0) {
		wait_asleep(parent);
		kill(parent, SIGSTOP);
		sleep_ms(30);
		kill(parent, SIGCONT);
		_exit(0);
	}
	reach_supervisor();
	CHECK_EQ(sys(SYS_nanosleep, &time, NULL), 0);
	CHECK_WITHIN(now_ms() - begin, 200, WAIT_MS);
	CHECK_EXITED(child_wait(child), 0);
}

int main(void)
{
	char byte = 0;
	pid_t child;

	MUST(pipe(pipe_ends));
	times_handled = shared_memory(sizeof(*times_handled));
	enter_supervisor(0);
	for (int i = 0; i < 10; i++) {
		on_signal(SIGALRM, handle, 0);
		CHECK_EQ(read_disturbed(&byte, false, 0), -EINTR);
		CHECK_EQ(*times_handled, 1);

		on_signal(SIGALRM, handle, SA_RESTART);
		CHECK_EQ(read_disturbed(&byte, true, 1), 1);
		CHECK_EQ(*times_handled, 1);
		CHECK_EQ(byte, 'x');

		on_signal(SIGALRM, SIG_IGN, 0);
		CHECK_EQ(read_disturbed(&byte, true, 0), 1);
		CHECK_EQ(*times_handled, 0);
	}
	child = child_start(die_in_read);
	wait_mode(child, TL_MODE_SUPERVISOR);
	wait_asleep(child);
	MUST(kill(child, SIGALRM));
	CHECK_KILLED(child_wait(child), SIGALRM);
	stopped_sleep();
	reach_supervisor();
	return 0;
}
