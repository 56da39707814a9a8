// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a call means by "the calling thread" is the worker where a worker makes it. Arguments that
 * mean that thread are refused to workers, and not to batches. The rest is as docs/batches.md says:
 * signals for a broken pipe or a file that is too large stay pending in the worker, a read of the
 * terminal from the background fails, and information that only its own thread may send is refused.
 */
#include <sys/resource.h>
#include <sys/wait.h>

#include "ring.h"

#define SELF_THREAD -10000	/* PIDFD_SELF_THREAD */
#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif
#ifndef __WNOTHREAD
#define __WNOTHREAD 0x20000000
#endif

static struct ring ring;
static struct worker worker;

#define worker_call(...) ({ ring_queue(&ring, 0, __VA_ARGS__); served(); })

static long served(void)
{
	CHECK_EQ(ring_wait(&ring, 1, 0), 0);
	CHECK_EQ(ring_state(&ring, 0), TL_DONE);
	return ring_result(&ring, 0);
}

static void values_are_refused(void)
{
	struct ring own = ring_open(4);
	pid_t child = MUST(fork());
	siginfo_t info;
	int timer;

	if (child == 0)
		_exit(3);
	CHECK_EQ(worker_call(SYS_pidfd_send_signal, SELF_THREAD, SIGUSR2, 0, 0), -EOPNOTSUPP);
	CHECK_EQ(worker_call(SYS_pidfd_send_signal, (uint32_t)SELF_THREAD, SIGUSR2, 0, 0),
		 -EOPNOTSUPP);
	CHECK_EQ(worker_call(SYS_pidfd_send_signal, -1, SIGUSR2, 0, 0), -EBADF);
	CHECK_EQ(worker_call(SYS_wait4, child, 0, __WNOTHREAD, 0), -EOPNOTSUPP);
	CHECK_EQ(worker_call(SYS_waitid, P_PID, child, &info, WEXITED | __WNOTHREAD, 0),
		 -EOPNOTSUPP);
	CHECK_EQ(worker_call(SYS_timer_create, CLOCK_THREAD_CPUTIME_ID, 0, &timer), -EOPNOTSUPP);
	CHECK_EQ(worker_call(SYS_timer_create, CLOCK_MONOTONIC, 0, &timer), 0);
	CHECK_EQ(worker_call(SYS_pause), -EOPNOTSUPP);
	CHECK_EQ(ring_stats(&ring).refused, 6);
	CHECK_EQ(batch_call(&own, SYS_wait4, child, 0, __WNOTHREAD, 0), child);
	child = MUST(fork());
	if (child == 0)
		_exit(3);
	CHECK_EQ(worker_call(SYS_wait4, child, 0, 0, 0), child);
	CHECK_EQ(batch_call(&own, SYS_timer_create, CLOCK_THREAD_CPUTIME_ID, 0, &timer), 0);
	ring_close(&own);
}

static bool worker_has_pending(int signal)
{
	char path[64], text[8192], *line;

	snprintf(path, sizeof(path), "/proc/self/task/%d/status", worker.tid);
	CHECK(read_file(path, text, sizeof(text)) > 0);
	line = strstr(text, "\nSigPnd:");
	CHECK(line);
	return strtoul(line + 8, NULL, 16) >> (signal - 1) & 1;
}

static void signals_stay_in_the_worker(void)
{
	const struct rlimit small = { 10, RLIM_INFINITY };
	struct rlimit before;
	int ends[2], file;

	on_signal(SIGPIPE, count_signal, SA_RESTART);
	on_signal(SIGXFSZ, count_signal, SA_RESTART);
	MUST(pipe(ends));
	MUST(close(ends[0]));
	CHECK_EQ(worker_call(SYS_write, ends[1], "x", 1), -EPIPE);
	CHECK(worker_has_pending(SIGPIPE));
	file = MUST(open("large", O_CREAT | O_RDWR | O_TRUNC, 0600));
	MUST(getrlimit(RLIMIT_FSIZE, &before));
	MUST(setrlimit(RLIMIT_FSIZE, &small));
	CHECK_EQ(worker_call(SYS_pwrite64, file, "x", 1, 100), -EFBIG);
	MUST(setrlimit(RLIMIT_FSIZE, &before));
	CHECK(worker_has_pending(SIGXFSZ));
	CHECK_EQ(handled, 0);
}

static void information_is_refused(void)
{
	siginfo_t info = { .si_signo = SIGUSR1, .si_code = SI_USER };
	sigset_t set;

	/* It would interrupt the wait for the worker. */
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	CHECK_EQ(pthread_sigmask(SIG_BLOCK, &set, NULL), 0);
	on_signal(SIGUSR1, count_signal, SA_RESTART);
	CHECK_EQ(worker_call(SYS_rt_sigqueueinfo, getpid(), SIGUSR1, &info), -EPERM);
	info.si_code = SI_QUEUE;
	CHECK_EQ(worker_call(SYS_rt_sigqueueinfo, getpid(), SIGUSR1, &info), 0);
	CHECK_EQ(pthread_sigmask(SIG_UNBLOCK, &set, NULL), 0);
	CHECK_EQ(handled, 1);
}

static int terminal;

static void read_plainly(void)
{
	char byte;

	MUST(setpgid(0, 0));
	sys(SYS_read, terminal, &byte, 1);
}

static void read_by_worker(void)
{
	char byte;

	MUST(setpgid(0, 0));
	ring = worker_ring_open(4);
	worker_start(&worker, &ring);
	CHECK_EQ(worker_call(SYS_read, terminal, &byte, 1), -EIO);
}

/* The leader of a session; what it starts is in the background of its terminal. */
static void lead_a_session(void)
{
	int master, number, unlocked = 0, status;
	char path[32];
	pid_t pid;

	MUST(setsid());
	master = MUST(open("/dev/ptmx", O_RDWR | O_NOCTTY));
	MUST(ioctl(master, TIOCSPTLCK, &unlocked));
	MUST(ioctl(master, TIOCGPTN, &number));
	snprintf(path, sizeof(path), "/dev/pts/%d", number);
	terminal = MUST(open(path, O_RDWR));
	pid = child_start(read_plainly);
	CHECK_EQ(waitpid(pid, &status, WUNTRACED), pid);
	CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTTIN);
	MUST(kill(pid, SIGKILL));
	child_wait(pid);
	CHECK_CHILD(child_run(read_by_worker));
}

int main(void)
{
	CHECK_CHILD(child_run(lead_a_session));
	ring = worker_ring_open(4);
	worker_start(&worker, &ring);
	values_are_refused();
	signals_stay_in_the_worker();
	information_is_refused();
	workers_end(&ring, &worker, 1);
	return 0;
}
