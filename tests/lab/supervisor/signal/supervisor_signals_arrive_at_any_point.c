// SPDX-License-Identifier: GPL-2.0-only
/*
 * Signals from another process and from timers, thousands a second, arrive before, in and after
 * calls and between two instructions. Handlers run in user mode and make calls of their own; no
 * call of the program is lost, made twice or changed, nor is a register.
 */
#include "supervisor.h"

#define TIME_MS 300000		/* for a hang: it takes seconds */
#define SIGNALS 1500
#define ROUNDS 50		/* at least: on a busy machine all signals may come in one round */

static volatile long from_handler;
static int pipe_ends[2];

static void handle(int signal)
{
	int saved = errno;

	CHECK_EQ(cpl(), 3);	/* where the kernel starts handlers */
	(void)signal;
	/* One instruction each: a handler of another signal may come in between any two. */
	__atomic_fetch_add(&handled, 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&from_handler, sys(SYS_getpid), __ATOMIC_RELAXED);
	errno = saved;
}

static void send_signals(pid_t pid)
{
	static const int signals[] = { SIGUSR1, SIGUSR2, SIGALRM };

	for (unsigned int i = 0; kill(pid, signals[i % 3]) == 0; i++)
		for (volatile unsigned int spin = 0; spin < (i * 37) % 3000; spin++)
			;
	_exit(0);
}

/* Bytes through a pipe are the calls' count: one that is lost or repeated shifts all others. */
static void check_pipe(uint8_t value)
{
	uint8_t got = (uint8_t)~value;

	CHECK_EQ(sys(SYS_write, pipe_ends[1], &value, 1), 1);
	CHECK_EQ(sys(SYS_read, pipe_ends[0], &got, 1), 1);
	CHECK_EQ(got, value);
}

/* Registers that nobody may touch between two calls. */
static void check_registers(uint64_t value)
{
	uint64_t r12 = value, r13 = ~value;

	__asm__ volatile("mov $300, %%rcx\n\t"
			 "movq %0, %%xmm7\n"
			 "1:	dec %%rcx\n\t"
			 "jnz 1b\n\t"
			 "mov $110, %%eax\n\t"
			 "syscall\n\t"
			 "mov $300, %%rcx\n"
			 "2:	dec %%rcx\n\t"
			 "jnz 2b\n\t"
			 "movq %%xmm7, %%rdx\n\t"
			 "sub %%rdx, %0\n\t"
			 "not %1\n\t"
			 "sub %%rdx, %1"
			 : "+r"(r12), "+r"(r13)
			 :
			 : "rax", "rcx", "rdx", "r11", "xmm7", "cc", "memory");
	CHECK_EQ(r12, 0);
	CHECK_EQ(r13, 0);
}

int main(void)
{
	static const int signals[] = { SIGUSR1, SIGUSR2, SIGALRM };
	long rounds = 0, inside = 0, pid = getpid();
	pid_t sender;
	uint64_t end;

	for (int i = 0; i < 3; i++)
		on_signal(signals[i], handle, SA_RESTART);
	MUST(pipe(pipe_ends));
	enter_supervisor(0);
	sender = MUST(fork());
	if (sender == 0)
		send_signals((pid_t)pid);
	alarm_ms(1, 3);
	end = now_ms() + TIME_MS;
	for (; (handled < SIGNALS || rounds < ROUNDS) && now_ms() < end; rounds++) {
		check_pipe((uint8_t)rounds);
		check_registers((uint64_t)rounds * 0x9e3779b97f4a7c15u);
		CHECK_EQ(sys(SYS_getpid), pid);
		inside += cpl() == 0;
	}
	MUST(kill(sender, SIGKILL));
	child_wait(sender);
	alarm_ms(0, 0);
	fprintf(stderr, "%ld rounds, %d signals, %ld in supervisor mode\n", rounds, (int)handled,
		inside);
	CHECK(handled >= SIGNALS);
	CHECK_EQ(from_handler, handled * pid);
	CHECK(inside > rounds / 10);
	return 0;
}
