/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Switches processes between user and supervisor mode and reads their mode. It uses the raw
 * interface of <linux/trapless.h>, the privilege level in CS and the counts of the module, and does
 * not trust the library.
 *
 * An interrupt may take a thread out of supervisor mode between any two instructions, until its
 * next call. A test that must be in supervisor mode at some instruction therefore stores CS there
 * and tries again (see struct witness), or counts how many of many calls were in that mode.
 */
#ifndef TL_TEST_SUPERVISOR_H
#define TL_TEST_SUPERVISOR_H

#include <linux/trapless.h>
#include <sys/ioctl.h>

#include "check.h"

#define USER_CS 0x33
#define USER_SS 0x2b
#define REACH_CALLS 100		/* more calls than interrupts can undo in a row */
#define MOST(n) ((n) * 9L / 10)	/* of n calls, what interrupts leave even on a slow machine */

/* Shared memory in which a program leaves its state before it dies, for its parent. */
struct witness {
	volatile uint16_t cs;		/* just before the fatal instruction */
	volatile uint32_t tries;
};

static inline unsigned int code_segment(void)
{
	unsigned int cs;

	__asm__ volatile("mov %%cs, %0" : "=r"(cs));
	return cs;
}

/* Current privilege level: 0 supervisor mode, 3 user mode. */
static inline unsigned int cpl(void)
{
	return code_segment() & 3;
}

/* Whether processor and kernel have what /proc/cpuinfo names with this flag. */
static inline bool processor_has(const char *flag)
{
	static char text[1 << 16];
	char word[32];

	CHECK(read_file("/proc/cpuinfo", text, sizeof(text)) > 0);
	snprintf(word, sizeof(word), " %s", flag);
	return strstr(text, word);
}

/* One descriptor for all ioctls of this process and of what it forks. */
static inline int supervisor_fd(void)
{
	static int opened = -1;
	long fd;

	if (opened < 0) {
		fd = sys(SYS_openat, AT_FDCWD, TL_DEVICE, O_RDWR | O_CLOEXEC);
		if (fd < 0)
			FAIL("open %s: %s", TL_DEVICE, strerror((int)-fd));
		opened = (int)fd;
	}
	return opened;
}

static inline long switch_ioctl(struct tl_switch *request)
{
	return sys(SYS_ioctl, supervisor_fd(), TL_IOC_SWITCH, request);
}

/* pid 0 is oneself; 0 or -errno. */
static inline long switch_mode(pid_t pid, enum tl_mode mode, unsigned int flags)
{
	struct tl_switch request = {
		.size = sizeof(request), .mode = mode, .pid = pid, .flags = flags,
	};

	return switch_ioctl(&request);
}

static inline long raw_switch_supervisor(pid_t pid)
{
	return switch_mode(pid, TL_MODE_SUPERVISOR, 0);
}

static inline long raw_switch_user(pid_t pid)
{
	return switch_mode(pid, TL_MODE_USER, 0);
}

static inline struct tl_supervisor supervisor_info(void)
{
	struct tl_supervisor info = { .size = sizeof(info) };

	CHECK_EQ(sys(SYS_ioctl, supervisor_fd(), TL_IOC_SUPERVISOR, &info), 0);
	return info;
}

/* A machine that refuses skips; a lab that forgot the module's parameter is no machine. */
static inline void supervisor_need(void)
{
	uint64_t refusals = supervisor_info().refusals;

	if (refusals & 1ull << TL_REFUSED_PARAMETER)
		FAIL("the module was loaded without supervisor=1");
	if (refusals)
		SKIP("supervisor mode is refused here, tl_supervisor.refusals is 0x%llx",
		     (unsigned long long)refusals);
}

/*
 * Calls until one has returned in supervisor mode; the caller's process is switched. Where others
 * overwrite the processor's entry, calls stay in user mode until the thread is scheduled in again:
 * hence the naps.
 */
static inline void reach_supervisor(void)
{
	for (int i = 0; i < REACH_CALLS; i++) {
		if (cpl() == 0)
			return;
		sys(SYS_getppid);
		if (i % 10 == 9)
			usleep(1000);
	}
	FAIL("still in user mode after %d calls", REACH_CALLS);
}

/* The lowest of many calls: an interrupt brings a thread back to user mode until its next call. */
static inline unsigned int level_reached(void)
{
	unsigned int lowest = 3;

	for (int i = 0; i < REACH_CALLS; i++) {
		sys(SYS_getppid);
		if (cpl() < lowest)
			lowest = cpl();
	}
	return lowest;
}

/* From now on the calls of this process run in supervisor mode. */
static inline void enter_supervisor(unsigned int flags)
{
	supervisor_need();
	CHECK_EQ(switch_mode(0, TL_MODE_SUPERVISOR, flags), 0);
	reach_supervisor();
}

static inline void enter_user(void)
{
	CHECK_EQ(raw_switch_user(0), 0);
	sys(SYS_getppid);
	CHECK_EQ(cpl(), 3);
}

/* Exits with the mode that most calls return in: 0 supervisor mode, 3 user mode. */
static inline void __attribute__((noreturn)) report_mode(void)
{
	unsigned int inside = 0;

	for (int i = 0; i < REACH_CALLS; i++) {
		sys(SYS_getppid);
		inside += cpl() == 0;
	}
	_exit(inside == 0 ? 3 : inside > REACH_CALLS * 8 / 10 ? 0 : 99);
}

/* ---- What the module counts -------------------------------------------------------------- */

#define PROCESSES_MAX 512
#define PROCESSES_ENDED 0	/* process ID of the last entry: all that ended or went back */

/* Whether the module knows the process; then what it says of it. */
static inline bool process_find(pid_t pid, struct tl_process *found)
{
	static struct tl_process entries[PROCESSES_MAX];
	struct tl_processes list = {
		.size = sizeof(list), .entry_size = sizeof(*entries),
		.count = PROCESSES_MAX, .entries = (uintptr_t)entries,
	};

	CHECK_EQ(sys(SYS_ioctl, supervisor_fd(), TL_IOC_PROCESSES, &list), 0);
	CHECK(list.count <= PROCESSES_MAX && list.count <= list.total);
	for (unsigned int i = 0; i < list.count; i++) {
		if (entries[i].pid == pid) {
			*found = entries[i];
			return true;
		}
	}
	return false;
}

static inline struct tl_process process_counts(pid_t pid)
{
	struct tl_process found;

	if (!process_find(pid, &found))
		FAIL("the module does not know process %d", (int)pid);
	return found;
}

/* All calls of a switched process, whichever way they went. */
static inline uint64_t calls_of(const struct tl_process *process)
{
	return process->calls_direct + process->calls_worked + process->calls_left +
	       process->calls_kernel;
}

/* Those that returned in supervisor mode. */
static inline uint64_t calls_inside(const struct tl_process *process)
{
	return process->calls_direct + process->calls_worked;
}

static inline uint64_t demoted(const struct tl_process *before, const struct tl_process *after,
			       enum tl_demotion cause)
{
	return after->demotions[cause] - before->demotions[cause];
}

/* Waits until all threads of another process, which makes calls, are in the mode. */
static inline void wait_mode(pid_t pid, enum tl_mode mode)
{
	uint64_t deadline = now_ms() + WAIT_MS;
	struct tl_process process = { 0 };

	while (now_ms() < deadline) {
		bool known = process_find(pid, &process);
		unsigned int want = mode == TL_MODE_SUPERVISOR ? process.threads : 0;

		if (!known && mode == TL_MODE_USER)
			return;
		if (known && process.supervisor == want && (want || mode == TL_MODE_USER))
			return;
		sleep_ms(1);
	}
	FAIL("process %d: %u of %u threads in supervisor mode after %d ms", (int)pid,
	     process.supervisor, process.threads, WAIT_MS);
}

#endif /* TL_TEST_SUPERVISOR_H */
