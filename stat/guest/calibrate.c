/* SPDX-License-Identifier: GPL-2.0-only
 *
 * What calls cost on this kernel by trap, in a batch and in supervisor mode, and what takes a
 * thread out of supervisor mode costs it: short loops, each a phase of the model, counted as the
 * program itself is. They run in user and in supervisor mode alike; each adds one thing to what
 * the loops before it do, so that trapless/stat/costs.py finds what that thing costs.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "stat.h"

/* A phase says which loop, in which mode, in which round. */
#define PHASE_CALIBRATION 0x80
#define PHASE_SUPERVISOR 0x40
#define PHASE_ROUND 0x10
#define ROUNDS 3 /* of which the least counts */

#define OPERATIONS 64
#define CHILDREN 4
#define BATCH 32
#define PAGE 4096ul
#define NAP_NS 8000000 /* until the timer, and what it left to do, are behind */

struct pipes {
	int to[2], from[2];
	pid_t partner; /* answers each byte */
};

struct loop {
	unsigned char *pages; /* that nobody has touched: 2 * OPERATIONS */
	struct tl_batch *batch;
	struct pipes outside, within;
	int zero; /* /dev/zero */
};

static inline long call(long number, long a, long b, long c)
{
	register long result __asm__("rax") = number;

	__asm__ volatile("syscall" : "+r"(result) : "D"(a), "S"(b), "d"(c)
			 : "rcx", "r11", "memory");
	return result;
}

static void run_nothing(struct loop *loop)
{
	int i;

	(void)loop;
	for (i = 0; i < OPERATIONS; i++)
		__asm__ volatile("" : : : "memory");
}

static void run_calls(struct loop *loop)
{
	int i;

	(void)loop;
	for (i = 0; i < OPERATIONS; i++)
		call(SYS_getppid, 0, 0, 0);
}

static void run_batches(struct loop *loop)
{
	int i, j;

	for (i = 0; i < OPERATIONS / BATCH; i++) {
		for (j = 0; j < BATCH; j++)
			tl_batch_add(loop->batch, SYS_getppid, 0, 0, 0, 0, 0, 0);
		tl_batch_flush(loop->batch);
	}
}

static void touch(struct loop *loop, int page)
{
	*(volatile unsigned char *)(loop->pages + (size_t)page * PAGE) = 1;
}

/* A page fault before each call. */
static void run_faults(struct loop *loop)
{
	int i;

	for (i = 0; i < OPERATIONS; i++) {
		touch(loop, i);
		call(SYS_getppid, 0, 0, 0);
	}
}

/* Two page faults before each call. */
static void run_double_faults(struct loop *loop)
{
	int i;

	for (i = 0; i < OPERATIONS; i++) {
		touch(loop, 2 * i);
		touch(loop, 2 * i + 1);
		call(SYS_getppid, 0, 0, 0);
	}
}

/* A page fault in the kernel, inside each call. */
static void run_kernel_faults(struct loop *loop)
{
	int i;

	for (i = 0; i < OPERATIONS; i++)
		call(SYS_read, loop->zero, (long)(loop->pages + (size_t)i * PAGE), 1);
}

/* A call that supervisor mode leaves to the kernel's own entry, as it does a signal's return. */
static void run_handed(struct loop *loop)
{
	int i;

	(void)loop;
	for (i = 0; i < OPERATIONS; i++) {
		call(SYS_prctl, PR_GET_DUMPABLE, 0, 0);
		call(SYS_getppid, 0, 0, 0);
	}
}

/* Two calls; closing the last of a file leaves work for the way out of the kernel. */
static void run_closes(struct loop *loop)
{
	int i;

	(void)loop;
	for (i = 0; i < OPERATIONS; i++)
		call(SYS_close, call(SYS_eventfd2, 0, 0, 0), 0, 0);
}

static void ping(const struct pipes *pipes)
{
	char byte = 0;
	int i;

	for (i = 0; i < OPERATIONS; i++) {
		call(SYS_write, pipes->to[1], (long)&byte, 1);
		call(SYS_read, pipes->from[0], (long)&byte, 1);
	}
}

static void set_policy(pid_t process, int policy)
{
	const struct sched_param none = { 0 };

	if (sched_setscheduler(process, policy, &none))
		stat_fail("cannot set a scheduling policy: %s", strerror(errno));
}

/* Each read sleeps, and a process that is no part of the program runs: a batch one, which does
 * not take the processor when the write wakes it. */
static void run_sleeps(struct loop *loop)
{
	ping(&loop->outside);
}

/* The same, but the write ends with the partner's turn. */
static void run_preemptions(struct loop *loop)
{
	ping(&loop->outside);
}

/* The partner is part of the program. */
static void run_sleeps_within(struct loop *loop)
{
	ping(&loop->within);
}

static void run_forks(struct loop *loop)
{
	int i;

	(void)loop;
	for (i = 0; i < CHILDREN; i++) {
		pid_t child = fork();

		if (!child)
			_exit(0);
		waitpid(child, NULL, 0);
	}
}

/* This program again, which ends at once (calibrate_is_idle). */
static void run_execs(struct loop *loop)
{
	char *const argv[] = { (char *)CALIBRATE_IDLE, NULL };
	int i;

	(void)loop;
	for (i = 0; i < CHILDREN; i++) {
		pid_t child = fork();

		if (!child) {
			execv("/proc/self/exe", argv);
			_exit(1);
		}
		waitpid(child, NULL, 0);
	}
}

/* In the order of trapless/stat/costs.py. */
static void (*const loops[])(struct loop *loop) = {
	run_nothing, run_calls, run_batches, run_faults, run_double_faults, run_kernel_faults,
	run_handed, run_closes, run_sleeps, run_preemptions, run_sleeps_within, run_forks,
	run_execs,
};

_Static_assert(sizeof(loops) / sizeof(*loops) <= PHASE_ROUND, "a phase has four bits for loops");

/* Fresh pages of small size, whatever was there before. */
static void renew_pages(struct loop *loop)
{
	if (loop->pages)
		munmap(loop->pages, 2 * OPERATIONS * PAGE);
	loop->pages = mmap(NULL, 2 * OPERATIONS * PAGE, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (loop->pages == MAP_FAILED)
		stat_fail("no memory to calibrate with: %s", strerror(errno));
}

static void run_loop(struct loop *loop, int number, int mode, int counting)
{
	const struct timespec nap = { .tv_nsec = NAP_NS };
	int round, phase;

	set_policy(loop->outside.partner,
		   loops[number] == run_preemptions ? SCHED_OTHER : SCHED_BATCH);
	for (round = -1; round < ROUNDS; round++) { /* the first is a warm-up */
		renew_pages(loop);
		nanosleep(&nap, NULL);
		phase = PHASE_CALIBRATION | mode | PHASE_ROUND * round | number;
		if (round >= 0)
			group_count(counting, phase);
		loops[number](loop);
		if (round >= 0)
			group_count(counting, PHASE_NONE);
		if (round >= 0)
			group_record_counts(phase);
	}
}

/* Answers until the pipe is closed. */
static void partner_begin(struct pipes *pipes)
{
	char byte;

	if (pipe(pipes->to) || pipe(pipes->from) || (pipes->partner = fork()) < 0)
		stat_fail("cannot start a process: %s", strerror(errno));
	if (pipes->partner)
		return;
	close(pipes->to[1]);
	while (read(pipes->to[0], &byte, 1) == 1)
		if (write(pipes->from[1], &byte, 1) != 1)
			break;
	_exit(0);
}

static void partner_end(struct pipes *pipes)
{
	close(pipes->to[1]);
	waitpid(pipes->partner, NULL, 0);
	close(pipes->to[0]);
	close(pipes->from[0]);
	close(pipes->from[1]);
}

static void run_all(struct loop *loop, int mode, int counting)
{
	int number;

	partner_begin(&loop->within);
	set_policy(loop->within.partner, SCHED_BATCH);
	for (number = 0; number < (int)(sizeof(loops) / sizeof(*loops)); number++)
		if (loops[number] != run_batches || (loop->batch && !mode))
			run_loop(loop, number, mode, counting);
	partner_end(&loop->within);
}

static void __attribute__((noreturn)) calibrate_here(int counting, bool supervisor)
{
	struct loop loop = { .zero = open("/dev/zero", O_RDONLY | O_CLOEXEC) };

	partner_begin(&loop.outside);
	group_enter();
	if (tl_batch_create(&loop.batch, BATCH, TL_MODULE))
		loop.batch = NULL; /* without the module there are no batches to speak of */
	run_all(&loop, 0, counting);
	if (supervisor) {
		supervisor_switch(0, true);
		run_all(&loop, PHASE_SUPERVISOR, counting);
	}
	partner_end(&loop.outside);
	_exit(0);
}

bool calibrate_is_idle(const char *name)
{
	return !strcmp(name, CALIBRATE_IDLE);
}

void calibrate(int counting, bool supervisor)
{
	pid_t child = fork();
	int status;

	if (child < 0)
		stat_fail("cannot start a process: %s", strerror(errno));
	if (!child)
		calibrate_here(counting, supervisor);
	if (waitpid(child, &status, 0) != child || status)
		stat_fail("the calibration ended with wait status %#x", (unsigned int)status);
}
