// SPDX-License-Identifier: GPL-2.0-only
/*
 * Runs short loops, each in a phase of the model. From their counts trapless/stat/costs.py computes
 * what calls cost on this kernel by trap, in a batch and in supervisor mode, and what it costs when
 * an event takes a thread out of supervisor mode. The loops run in both modes and are counted as
 * the program itself is. Each loop adds one kind of event to those of the loops before it. It owns
 * the loops; their names are in stat_labels.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "guest_stat.h"

#define ROUNDS 3 /* the round with the fewest instructions counts */
#define CHILDREN 4
#define PAGE 4096ul
#define SCAN_BYTES 16384 /* holds STAT_OPERATIONS entries with their attributes */
#define FILE_NAME "file-%d"
#define NAP_NS 8000000 /* longer than the timer's interrupt and the work that it leaves */

struct pipes {
	int to[2], from[2]; /* the second a pair of sockets, where a call can wait for more */
	pid_t partner; /* a process that answers each byte */
};

struct loop {
	unsigned char *pages; /* 2 * STAT_OPERATIONS pages that nobody has touched */
	struct tl_batch *batch;
	struct pipes outside, within;
	int zero; /* a file: /dev/zero */
	int folder, scanned; /* two descriptors of one folder; -1: TL_NR_SCANDIR is not offered */
	bool traced;
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
	for (i = 0; i < STAT_OPERATIONS; i++)
		__asm__ volatile("" : : : "memory");
}

static void run_calls(struct loop *loop)
{
	int i;

	(void)loop;
	for (i = 0; i < STAT_OPERATIONS; i++)
		call(SYS_getppid, 0, 0, 0);
}

static void run_batches(struct loop *loop)
{
	int i, j;

	for (i = 0; i < STAT_OPERATIONS / STAT_BATCH; i++) {
		for (j = 0; j < STAT_BATCH; j++)
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

	for (i = 0; i < STAT_OPERATIONS; i++) {
		touch(loop, i);
		call(SYS_getppid, 0, 0, 0);
	}
}

/* Two page faults before each call. */
static void run_double_faults(struct loop *loop)
{
	int i;

	for (i = 0; i < STAT_OPERATIONS; i++) {
		touch(loop, 2 * i);
		touch(loop, 2 * i + 1);
		call(SYS_getppid, 0, 0, 0);
	}
}

/* A page fault in the kernel, inside each call. */
static void run_kernel_faults(struct loop *loop)
{
	int i;

	for (i = 0; i < STAT_OPERATIONS; i++)
		call(SYS_read, loop->zero, (long)(loop->pages + (size_t)i * PAGE), 1);
}

/* A call that supervisor mode leaves to the kernel's own entry, as it does a signal's return. */
static void run_handed(struct loop *loop)
{
	int i;

	(void)loop;
	for (i = 0; i < STAT_OPERATIONS; i++) {
		call(SYS_prctl, PR_GET_DUMPABLE, 0, 0);
		call(SYS_getppid, 0, 0, 0);
	}
}

/* Two calls; closing the last of a file leaves work for the way out of the kernel. */
static void run_closes(struct loop *loop)
{
	int i;

	(void)loop;
	for (i = 0; i < STAT_OPERATIONS; i++)
		call(SYS_close, call(SYS_eventfd2, 0, 0, 0), 0, 0);
}

static void ping(const struct pipes *pipes)
{
	char byte = 0;
	int i;

	for (i = 0; i < STAT_OPERATIONS; i++) {
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

/*
 * Each read sleeps, and another process runs that does not belong to the program. Its policy is
 * SCHED_BATCH: it does not take the processor when the write wakes it.
 */
static void run_sleeps(struct loop *loop)
{
	ping(&loop->outside);
}

/* The same, but the write ends with the partner's turn. */
static void run_preemptions(struct loop *loop)
{
	ping(&loop->outside);
}

/* A call that sleeps twice: it waits for two answers, and the partner runs only meanwhile. */
static void run_sleeps_twice(struct loop *loop)
{
	const struct pipes *pipes = &loop->outside;
	char bytes[2] = { 0 };
	int i;

	for (i = 0; i < STAT_OPERATIONS; i++) {
		call(SYS_write, pipes->to[1], (long)bytes, sizeof(bytes));
		recv(pipes->from[0], bytes, sizeof(bytes), MSG_WAITALL);
	}
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

/* Runs this program once more, which then ends at once (calibrate_is_idle). */
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

/* Calls that are told apart. */
static void run_traced(struct loop *loop)
{
	run_calls(loop);
}

/*
 * The names of a folder and their attributes, by plain calls and by a compound call. The calls are
 * told apart: costs.py knows each by its number.
 */
static void run_scans(struct loop *loop)
{
	static char buffer[SCAN_BYTES] __attribute__((aligned(8)));
	struct statx attributes;
	char name[16];
	int i;

	call(SYS_getdents64, loop->folder, (long)buffer, sizeof(buffer));
	for (i = 0; i < STAT_OPERATIONS; i++) {
		snprintf(name, sizeof(name), FILE_NAME, i);
		syscall(SYS_statx, loop->folder, name, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS,
			&attributes);
	}
	TL_ADD(loop->batch, TL_NR_SCANDIR, loop->scanned, buffer, sizeof(buffer), STATX_BASIC_STATS,
	       TL_SCAN_NO_DOTS);
	tl_batch_flush(loop->batch);
}

static void (*const loops[])(struct loop *loop) = {
#define RUN(name) run_##name,
	STAT_LOOPS(RUN)
#undef RUN
};

_Static_assert(sizeof(loops) / sizeof(*loops) <= STAT_LOOP_MASK + 1, "a phase has too few bits");

/* Replaces the loop's pages by fresh ones of small size. */
static void renew_pages(struct loop *loop)
{
	if (loop->pages)
		munmap(loop->pages, 2 * STAT_OPERATIONS * PAGE);
	loop->pages = mmap(NULL, 2 * STAT_OPERATIONS * PAGE, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (loop->pages == MAP_FAILED)
		stat_fail("no memory to calibrate with: %s", strerror(errno));
}

static bool is_traced(int number)
{
	return loops[number] == run_traced || loops[number] == run_scans;
}

static void run_loop(struct loop *loop, int number, int mode, int counting)
{
	const struct timespec nap = { .tv_nsec = NAP_NS };
	int round, phase;

	set_policy(loop->outside.partner, loops[number] == run_preemptions ? SCHED_OTHER :
					  loops[number] == run_sleeps_twice ? SCHED_IDLE :
					  SCHED_BATCH);
	if (is_traced(number))
		group_trace(true);
	for (round = -1; round < ROUNDS; round++) { /* the first is a warm-up */
		renew_pages(loop);
		if (loops[number] == run_scans && (lseek(loop->folder, 0, SEEK_SET) ||
						   lseek(loop->scanned, 0, SEEK_SET)))
			stat_fail("cannot rewind a folder: %s", strerror(errno));
		nanosleep(&nap, NULL);
		phase = STAT_CALIBRATION | mode | STAT_ROUND * round | number;
		if (round >= 0)
			group_count(counting, phase);
		loops[number](loop);
		if (round >= 0)
			group_count(counting, PHASE_NONE);
		if (round >= 0)
			group_record_counts(phase);
	}
	if (is_traced(number))
		group_trace(false);
}

/* Starts the partner, which answers each byte until the pipe is closed. */
static void partner_begin(struct pipes *pipes)
{
	char byte;

	if (pipe(pipes->to) || socketpair(AF_UNIX, SOCK_STREAM, 0, pipes->from) ||
	    (pipes->partner = fork()) < 0)
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

/* Batches are made and calls are told apart in user mode alone. */
static bool is_wanted(const struct loop *loop, int number, int mode)
{
	if (loops[number] == run_batches)
		return loop->batch && !mode;
	if (loops[number] == run_scans && loop->folder < 0)
		return false;
	return !is_traced(number) || (loop->traced && !mode);
}

static void run_all(struct loop *loop, int mode, int counting)
{
	int number;

	partner_begin(&loop->within);
	set_policy(loop->within.partner, SCHED_BATCH);
	for (number = 0; number < (int)(sizeof(loops) / sizeof(*loops)); number++)
		if (is_wanted(loop, number, mode))
			run_loop(loop, number, mode, counting);
	partner_end(&loop->within);
}

/* Makes a folder of STAT_OPERATIONS files, if the module has the compound call. */
static void folder_create(struct loop *loop, char *path)
{
	char name[16];
	int i, file, slot;

	loop->folder = loop->scanned = -1;
	if (!loop->traced || !loop->batch)
		return;
	slot = TL_ADD(loop->batch, TL_NR_SCANDIR, -1, 0, 0, 0, 0);
	tl_batch_flush(loop->batch);
	if (tl_batch_result(loop->batch, (unsigned int)slot) != -EBADF)
		return;
	if (!mkdtemp(path) || (loop->folder = open(path, O_RDONLY | O_DIRECTORY)) < 0 ||
	    (loop->scanned = open(path, O_RDONLY | O_DIRECTORY)) < 0)
		stat_fail("cannot make a folder %s: %s", path, strerror(errno));
	for (i = 0; i < STAT_OPERATIONS; i++) {
		snprintf(name, sizeof(name), FILE_NAME, i);
		file = openat(loop->folder, name, O_CREAT | O_WRONLY, 0600);
		if (file < 0)
			stat_fail("cannot make a file in %s: %s", path, strerror(errno));
		close(file);
	}
}

static void folder_destroy(const struct loop *loop, const char *path)
{
	char name[16];
	int i;

	if (loop->folder < 0)
		return;
	for (i = 0; i < STAT_OPERATIONS; i++) {
		snprintf(name, sizeof(name), FILE_NAME, i);
		unlinkat(loop->folder, name, 0);
	}
	rmdir(path);
}

static void __attribute__((noreturn)) calibrate_here(int counting, bool supervisor,
						     bool traced)
{
	struct loop loop = { .zero = open("/dev/zero", O_RDONLY | O_CLOEXEC),
			     .traced = traced };
	char folder[] = "/tmp/trapless-stat-XXXXXX";

	partner_begin(&loop.outside);
	group_enter();
	if (tl_batch_create(&loop.batch, STAT_BATCH, TL_MODULE))
		loop.batch = NULL; /* without the module there are no batches to speak of */
	folder_create(&loop, folder);
	run_all(&loop, 0, counting);
	folder_destroy(&loop, folder);
	if (supervisor) {
		supervisor_switch(0, true);
		run_all(&loop, STAT_CALIBRATION_SUPERVISOR, counting);
	}
	partner_end(&loop.outside);
	_exit(0);
}

bool calibrate_is_idle(const char *name)
{
	return !strcmp(name, CALIBRATE_IDLE);
}

void calibrate(int counting, bool supervisor, bool traced)
{
	pid_t child = fork();
	int status;

	if (child < 0)
		stat_fail("cannot start a process: %s", strerror(errno));
	if (!child)
		calibrate_here(counting, supervisor, traced);
	if (waitpid(child, &status, 0) != child || status)
		stat_fail("the calibration ended with wait status %#x", (unsigned int)status);
}
