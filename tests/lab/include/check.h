/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The basis of every test program of the lab: assertions that print the value and the expected
 * value, system calls that return -errno, children, signals and time. It does not use the module.
 *
 * A program tests one behaviour, named by its file, and ends with 0 (holds), 1 (does not) or 77
 * (cannot be tested here, and says why).
 */
#ifndef TL_TEST_CHECK_H
#define TL_TEST_CHECK_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define EXIT_FAIL 1
#define EXIT_SKIP 77

/* _exit, not exit: a check may fail in a thread or in a forked child. */
#define FAIL(...) do {								\
	fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);				\
	fprintf(stderr, __VA_ARGS__);						\
	fputc('\n', stderr);							\
	_exit(EXIT_FAIL);							\
} while (0)

#define SKIP(...) do {								\
	fprintf(stderr, __VA_ARGS__);						\
	fputc('\n', stderr);							\
	_exit(EXIT_SKIP);							\
} while (0)

#define CHECK(condition) do {							\
	if (!(condition))							\
		FAIL("not true: %s", #condition);				\
} while (0)

static inline void check_eq(const char *where, long long got, const char *want_text, long long want)
{
	if (got == want)
		return;
	fprintf(stderr, "%s is %lld, expected %s", where, got, want_text);
	if (strcspn(want_text, "-0123456789"))
		fprintf(stderr, " = %lld", want);
	fputc('\n', stderr);
	_exit(EXIT_FAIL);
}

static inline void check_within(const char *where, long long got, long long low, long long high)
{
	if (got >= low && got <= high)
		return;
	fprintf(stderr, "%s is %lld, expected %lld..%lld\n", where, got, low, high);
	_exit(EXIT_FAIL);
}

#define TEXT_(line) #line
#define TEXT(line) TEXT_(line)

#define CHECK_EQ(got, want)							\
	check_eq(__FILE__ ":" TEXT(__LINE__) ": " #got, (long long)(got), #want, (long long)(want))

/* low <= got <= high */
#define CHECK_WITHIN(got, low, high)						\
	check_within(__FILE__ ":" TEXT(__LINE__) ": " #got, (long long)(got),	\
		     (long long)(low), (long long)(high))

/* For preparations that are not what the test is about: a call that must not return -1. */
#define MUST(call) ({								\
	__typeof__(call) value_ = (call);					\
										\
	if ((long)value_ == -1)							\
		FAIL("%s: %s", #call, strerror(errno));				\
	value_;									\
})

/* Zeroed; children that are forked later have the same. */
static inline void *shared_memory(size_t bytes)
{
	return MUST(mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
}

#ifdef __x86_64__
static inline void spin_hint(void)
{
	__builtin_ia32_pause();
}

static inline long sys6(long nr, long a0, long a1, long a2, long a3, long a4, long a5)
{
	register long r10 __asm__("r10") = a3;
	register long r8 __asm__("r8") = a4;
	register long r9 __asm__("r9") = a5;
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(nr), "D"(a0), "S"(a1), "d"(a2), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return result;
}
#else
static inline void spin_hint(void)
{
	__asm__ volatile("yield");
}

static inline long sys6(long nr, long a0, long a1, long a2, long a3, long a4, long a5)
{
	register long x8 __asm__("x8") = nr;
	register long x0 __asm__("x0") = a0;
	register long x1 __asm__("x1") = a1;
	register long x2 __asm__("x2") = a2;
	register long x3 __asm__("x3") = a3;
	register long x4 __asm__("x4") = a4;
	register long x5 __asm__("x5") = a5;

	__asm__ volatile("svc #0"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
			 : "memory");
	return x0;
}
#endif

/* sys(nr, up to six arguments): the call itself, result or -errno, no library between. */
#define SYS_PAD(nr, a0, a1, a2, a3, a4, a5, ...)				\
	sys6((long)(nr), (long)(a0), (long)(a1), (long)(a2), (long)(a3), (long)(a4), (long)(a5))
#define sys(...) SYS_PAD(__VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)

static inline uint64_t now_us(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000 + (uint64_t)time.tv_nsec / 1000;
}

static inline uint64_t now_ms(void)
{
	return now_us() / 1000;
}

static inline void sleep_ms(unsigned int ms)
{
	struct timespec time = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };

	while (nanosleep(&time, &time) && errno == EINTR)
		;
}

/* Reads a file of /proc or /sys whole; returns its length, or -errno. */
static inline long read_file(const char *path, char *text, size_t size)
{
	long fd = sys(SYS_openat, AT_FDCWD, path, O_RDONLY), length = 0, n;

	if (fd < 0)
		return fd;
	while ((size_t)length < size - 1 &&
	       (n = sys(SYS_read, fd, text + length, size - 1 - (size_t)length)) > 0)
		length += n;
	text[length] = '\0';
	sys(SYS_close, fd);
	return length;
}

/* Returns the bytes written, or -errno. */
static inline long write_file(const char *path, const char *text)
{
	long fd = sys(SYS_openat, AT_FDCWD, path, O_WRONLY), n;

	if (fd < 0)
		return fd;
	n = sys(SYS_write, fd, text, strlen(text));
	sys(SYS_close, fd);
	return n;
}

/* The calling thread runs on this CPU alone. */
static inline void pin_to_cpu(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	MUST(sched_setaffinity(0, sizeof(set), &set));
}

/*
 * A limit for what hangs. It is long, because a loaded machine is slow, and below the time limit of
 * the runner.
 */
#define WAIT_MS 300000

/* Waits until the condition holds, and fails with the message if it does not within `ms`. */
#define WAIT_UNTIL_MS(ms, condition, ...) do {					\
	uint64_t end_ = now_ms() + (ms);					\
										\
	while (!(condition)) {							\
		if (now_ms() > end_)						\
			FAIL(__VA_ARGS__);					\
		sleep_ms(1);							\
	}									\
} while (0)

#define WAIT_UNTIL(condition, ...) WAIT_UNTIL_MS(WAIT_MS, condition, __VA_ARGS__)

/* Waits until a thread of this process has ended. */
static inline void wait_thread_end(pid_t tid)
{
	char path[64], text[64];

	snprintf(path, sizeof(path), "/proc/self/task/%d/comm", (int)tid);
	WAIT_UNTIL(read_file(path, text, sizeof(text)) < 0, "thread %d has not ended", (int)tid);
}

/* Waits until a thread sleeps interruptibly: it has reached the call that it will block in. */
static inline void wait_asleep(pid_t tid)
{
	uint64_t deadline = now_ms() + WAIT_MS;
	char path[64], text[512], *state;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)tid);
	while (now_ms() < deadline) {
		CHECK(read_file(path, text, sizeof(text)) > 0);
		state = strrchr(text, ')');
		CHECK(state);
		if (state[2] == 'S')
			return;
		sleep_ms(1);
	}
	FAIL("thread %d does not sleep after %d ms", (int)tid, WAIT_MS);
}

static inline void on_signal(int signal, void (*handler)(int), int flags)
{
	struct sigaction action = { .sa_handler = handler, .sa_flags = flags };

	MUST(sigaction(signal, &action, NULL));
}

static volatile sig_atomic_t handled __attribute__((unused));

/* A handler that counts. */
static inline void count_signal(int signal)
{
	(void)signal;
	handled++;
}

/* Sends one SIGALRM after `ms`, then one every `again_ms`, or none if that is 0. */
static inline void alarm_ms(unsigned int ms, unsigned int again_ms)
{
	struct itimerval timer = {
		.it_value = { .tv_sec = ms / 1000, .tv_usec = (ms % 1000) * 1000 },
		.it_interval = { .tv_sec = again_ms / 1000, .tv_usec = (again_ms % 1000) * 1000 },
	};

	MUST(setitimer(ITIMER_REAL, &timer, NULL));
}

/* Runs body in a child, which exits with 0 when body returns. */
static inline pid_t child_start(void (*body)(void))
{
	pid_t pid = MUST(fork());

	if (pid == 0) {
		body();
		_exit(0);
	}
	return pid;
}

/* The wait status of a child that has ended. */
static inline int child_wait(pid_t pid)
{
	int status;
	pid_t got;

	do
		got = waitpid(pid, &status, 0);
	while (got < 0 && errno == EINTR);
	CHECK_EQ(got, pid);
	return status;
}

/*
 * Starts a child that sends a signal to this process as soon as this process sleeps in the call
 * that the signal is to interrupt. On a busy machine a timer could fire before that call. The
 * caller must not sleep before the call, and waits for the child after it.
 */
static inline pid_t signal_when_asleep(int signal)
{
	pid_t sleeper = getpid(), pid = MUST(fork());

	if (pid == 0) {
		wait_asleep(sleeper);
		MUST(kill(sleeper, signal));
		_exit(0);
	}
	return pid;
}

static inline int child_run(void (*body)(void))
{
	return child_wait(child_start(body));
}

#define CHECK_EXITED(status, code) do {						\
	int status_ = (status);							\
										\
	if (!WIFEXITED(status_) || WEXITSTATUS(status_) != (code))		\
		FAIL("%s: wait status is 0x%x, expected exit %d", #status, status_, (code)); \
} while (0)

#define CHECK_KILLED(status, signal_) do {					\
	int status_ = (status);							\
										\
	if (!WIFSIGNALED(status_) || WTERMSIG(status_) != (signal_))		\
		FAIL("%s: wait status is 0x%x, expected signal %d", #status, status_, (signal_)); \
} while (0)

/*
 * Runs this test's program again, from its beginning, as `stage`; returns only on failure. The
 * new program asks test_stage() which it is.
 */
static inline void __attribute__((noreturn)) exec_stage(const char *stage)
{
	MUST(setenv("TL_TEST_STAGE", stage, 1));
	execl("/proc/self/exe", program_invocation_short_name, (char *)NULL);
	FAIL("exec of /proc/self/exe: %s", strerror(errno));
}

/* The stage given to exec_stage, or "". */
static inline const char *test_stage(void)
{
	const char *stage = getenv("TL_TEST_STAGE");

	return stage ? stage : "";
}

/* A child that skips makes the program skip, and a child that fails makes it fail. */
#define CHECK_CHILD(status) do {						\
	int verdict_ = (status);						\
										\
	if (WIFEXITED(verdict_) && WEXITSTATUS(verdict_) == EXIT_SKIP)		\
		_exit(EXIT_SKIP);						\
	CHECK_EXITED(verdict_, 0);						\
} while (0)

#endif /* TL_TEST_CHECK_H */
