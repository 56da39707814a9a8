// SPDX-License-Identifier: GPL-2.0-only
/*
 * The program's own threads serve a ring. A signal makes them return -EINTR, and they may enter
 * again. Destroying the ring makes them return the number of requests that they have served. A
 * signal wakes a requester that waits, too. A worker that a signal has taken from its sleep as a
 * request came is woken for later requests. While it does not run, another worker tells of many
 * completions at once; when it leaves, of those that nobody was told of.
 */
#include <poll.h>
#include <sys/ioctl.h>

#include "lib_check.h"

static struct tl_psc *psc;
static pid_t server_tid;
static int interruptions;
static long served;

static void *server(void *arg)
{
	(void)arg;
	__atomic_store_n(&server_tid, gettid(), __ATOMIC_SEQ_CST);
	while ((served = tl_psc_enter(psc)) == -EINTR)
		__atomic_fetch_add(&interruptions, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

static pthread_t server_start(void *(*serve)(void *))
{
	pthread_t thread;

	server_tid = 0;
	interruptions = 0;
	CHECK_EQ(pthread_create(&thread, NULL, serve, NULL), 0);
	while (!__atomic_load_n(&server_tid, __ATOMIC_SEQ_CST))
		sched_yield();
	return thread;
}

static void signal_makes_worker_return(void)
{
	pthread_t thread;
	int64_t result;

	CHECK_EQ(tl_psc_create(&psc, 8, 0, LIB_FLAGS), 0);
	on_signal(SIGUSR1, count_signal, SA_RESTART);
	thread = server_start(server);
	wait_asleep(server_tid);
	CHECK_EQ(pthread_kill(thread, SIGUSR1), 0);
	for (int i = 0; !__atomic_load_n(&interruptions, __ATOMIC_SEQ_CST); i++) {
		CHECK(i < 5000);
		sleep_ms(1);
	}
	CHECK_EQ(TL_PSC_ADD(psc, SYS_getpid), 0);
	CHECK_EQ(tl_psc_wait(psc, 0), 0);
	CHECK_EQ(tl_psc_result(psc, 0, &result), 1);
	CHECK_EQ(result, getpid());
	tl_psc_destroy(psc);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(served, 1);
	CHECK_EQ(interruptions, 1);
}

#define HANG_NS (60ull * 1000000000)

static int is_in_handler, may_return;

static void stay_in_handler(int number)
{
	(void)number;
	__atomic_store_n(&is_in_handler, 1, __ATOMIC_SEQ_CST);
	while (!__atomic_load_n(&may_return, __ATOMIC_SEQ_CST))
		sched_yield();
}

/* The signal has ended the worker's sleep, and the worker does not know that yet. */
static void request_comes_as_signal_ends_sleep(void)
{
	pthread_t thread;
	int64_t result;
	int slot;

	CHECK_EQ(tl_psc_create(&psc, 8, 0, LIB_FLAGS), 0);
	on_signal(SIGUSR1, stay_in_handler, 0);
	thread = server_start(server);
	wait_asleep(server_tid);
	CHECK_EQ(pthread_kill(thread, SIGUSR1), 0);
	while (!__atomic_load_n(&is_in_handler, __ATOMIC_SEQ_CST))
		sched_yield();
	slot = TL_PSC_ADD(psc, SYS_getpid);
	CHECK_EQ(tl_psc_notify(psc), 1);
	__atomic_store_n(&may_return, 1, __ATOMIC_SEQ_CST);
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(tl_psc_wait_for(psc, 0, HANG_NS), 0);
		CHECK_EQ(tl_psc_result(psc, slot, &result), 1);
		CHECK_EQ(result, getpid());
		wait_asleep(server_tid);
		slot = TL_PSC_ADD(psc, SYS_getpid);
	}
	CHECK_EQ(tl_psc_wait_for(psc, 0, HANG_NS), 0);
	tl_psc_destroy(psc);
	CHECK_EQ(pthread_join(thread, NULL), 0);
}

static void signal_wakes_requester(void)
{
	int pipes[2];
	pid_t waker;
	char byte;

	MUST(pipe(pipes));
	psc = psc_new(8, 0, 1);
	on_signal(SIGALRM, count_signal, 0);
	handled = 0;
	TL_PSC_ADD(psc, SYS_read, pipes[0], &byte, 1);
	waker = signal_when_asleep(SIGALRM);
	CHECK_EQ(tl_psc_wait(psc, 0), -EINTR);
	CHECK_EXITED(child_wait(waker), 0);
	CHECK_EQ(handled, 1);
	MUST(write(pipes[1], "q", 1));
	CHECK_EQ(tl_psc_wait(psc, 0), 0);
	CHECK_EQ(byte, 'q');
	tl_psc_destroy(psc);
	close(pipes[0]);
	close(pipes[1]);
}

#define BUSY 2
#define PIPE_BYTES 65536

static int busy_pipes[BUSY][2];

static void pipe_to_fill(int pipes[2])
{
	MUST(pipe(pipes));
	CHECK_EQ(MUST(fcntl(pipes[1], F_SETPIPE_SZ, PIPE_BYTES)), PIPE_BYTES);
}

/* A write of more than a pipe holds shows that it is under way: the pipe is full. */
static void wait_full(const int pipes[2])
{
	int held = 0;

	while (held < PIPE_BYTES) {
		sched_yield();
		MUST(ioctl(pipes[0], FIONREAD, &held));
	}
}

#define NAPS 8
#define SILENCE_MS 60000

static void *server_until_signal(void *arg)
{
	(void)arg;
	__atomic_store_n(&server_tid, gettid(), __ATOMIC_SEQ_CST);
	served = tl_psc_enter(psc);
	return NULL;
}

/* Takes n completions. Returns how often the descriptor told of some. */
static int signals_for(int n)
{
	struct pollfd poll_fd = { .fd = tl_psc_fd(psc), .events = POLLIN };
	struct tl_psc_completion completion;
	int signals = 0;

	while (n > 0) {
		CHECK_EQ(MUST(poll(&poll_fd, 1, SILENCE_MS)), 1);
		signals++;
		while (tl_psc_next(psc, &completion) == 1)
			n--;
	}
	return signals;
}

/* The worker that was woken to watch the other one's calls is in a signal handler. */
static void completions_wait_for_a_watcher_that_leaves(void)
{
	const struct timespec nap = { .tv_nsec = 1000000 };
	static char bytes[PIPE_BYTES + 1];
	pthread_t thread;
	int pipes[2];

	pipe_to_fill(pipes);
	is_in_handler = may_return = 0;
	thread = server_start(server_until_signal);
	wait_asleep(server_tid);
	CHECK_EQ(pthread_kill(thread, SIGUSR1), 0);
	while (!__atomic_load_n(&is_in_handler, __ATOMIC_SEQ_CST))
		sched_yield();
	CHECK_EQ(tl_psc_start(psc, 1), 0);
	for (int i = 0; i < NAPS; i++)
		CHECK(TL_PSC_ADD(psc, SYS_nanosleep, &nap, NULL) >= 0);
	CHECK_EQ(tl_psc_notify(psc), NAPS);
	CHECK_EQ(signals_for(NAPS), 1);
	CHECK(TL_PSC_ADD(psc, SYS_getpid) >= 0);
	CHECK(TL_PSC_ADD(psc, SYS_write, pipes[1], bytes, sizeof(bytes)) >= 0);
	CHECK_EQ(tl_psc_notify(psc), 2);
	wait_full(pipes);
	__atomic_store_n(&may_return, 1, __ATOMIC_SEQ_CST);
	CHECK_EQ(signals_for(1), 1);
	CHECK(MUST(read(pipes[0], bytes, sizeof(bytes))) > 0);
	CHECK_EQ(signals_for(1), 1);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(served, -EINTR);
	tl_psc_destroy(psc);
	close(pipes[0]);
	close(pipes[1]);
}

static void completions_are_told_together(void)
{
	struct tl_psc_completion completion;

	CHECK_EQ(tl_psc_create(&psc, NAPS, 0, LIB_FLAGS | TL_COMPLETIONS), 0);
	on_signal(SIGUSR1, stay_in_handler, 0);
	CHECK(tl_psc_fd(psc) >= 0);
	CHECK_EQ(tl_psc_next(psc, &completion), 0);
	if (tl_psc_backend(psc) == TL_BACKEND_PLAIN)
		completions_wait_for_a_watcher_that_leaves();
	else
		tl_psc_destroy(psc);
}

/* Takes what the workers write, but only once the thread that ends their ring waits for them. */
static void *take_all(void *ending)
{
	static char bytes[PIPE_BYTES];

	wait_asleep(*(pid_t *)ending);
	for (int i = 0; i < BUSY; i++) {
		ssize_t sum = 0, n;

		while (sum <= PIPE_BYTES &&
		       (n = MUST(read(busy_pipes[i][0], bytes, sizeof(bytes)))) > 0)
			sum += n;
		CHECK_EQ(sum, PIPE_BYTES + 1);
	}
	return NULL;
}

static void end_finds_workers_busy(void)
{
	static char bytes[PIPE_BYTES + 1];
	pid_t ending = gettid();
	pthread_t taker;

	psc = psc_new(8, 0, BUSY);
	for (int i = 0; i < BUSY; i++) {
		pipe_to_fill(busy_pipes[i]);
		TL_PSC_ADD(psc, SYS_write, busy_pipes[i][1], bytes, sizeof(bytes));
	}
	CHECK_EQ(tl_psc_notify(psc), BUSY);
	for (int i = 0; i < BUSY; i++)
		wait_full(busy_pipes[i]);
	CHECK_EQ(pthread_create(&taker, NULL, take_all, &ending), 0);
	tl_psc_destroy(psc);
	for (int i = 0; i < BUSY; i++)
		close(busy_pipes[i][1]);
	CHECK_EQ(pthread_join(taker, NULL), 0);
	for (int i = 0; i < BUSY; i++)
		close(busy_pipes[i][0]);
}

static void end_finds_nothing_begun(void)
{
	CHECK_EQ(tl_psc_create(&psc, 8, 0, LIB_FLAGS), 0);
	TL_PSC_ADD(psc, SYS_kill, getpid(), SIGKILL);
	CHECK_EQ(tl_psc_notify(psc), 1);
	tl_psc_destroy(psc);
}

static void start_without_memory(void)
{
	pthread_attr_t attributes;

	CHECK_EQ(tl_psc_create(&psc, 8, 0, LIB_FLAGS), 0);
	CHECK_EQ(pthread_attr_init(&attributes), 0);
	CHECK_EQ(pthread_attr_setstacksize(&attributes, (size_t)1 << 56), 0);
	CHECK_EQ(pthread_setattr_default_np(&attributes), 0);
	errno = EXDEV;
	CHECK_EQ(tl_psc_start(psc, 1), -EAGAIN);
	CHECK_EQ(errno, EXDEV);
	tl_psc_destroy(psc);
}

static void lack_of_memory_is_told_without_errno(void)
{
	CHECK_EXITED(child_run(start_without_memory), 0);
}

int main(void)
{
	signal_makes_worker_return();
	request_comes_as_signal_ends_sleep();
	completions_are_told_together();
	signal_wakes_requester();
	end_finds_workers_busy();
	end_finds_nothing_begun();
	lack_of_memory_is_told_without_errno();
	return 0;
}
