// SPDX-License-Identifier: GPL-2.0-only
/*
 * See loops.h. Reads and writes go through files of as many pages as a run makes calls, all of them
 * cached; sbrk moves the break within a page, there and back. A file that is read is never written
 * again: its times decide what the kernel does about them at each read.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "loops.h"
#include "measure.h"
#include "mode.h"

#define CALLS_A_RUN 512u
#define CALLS_A_RUN_PAGES 128u	/* of a page each: a run must fit between two timer ticks */
#define PAGE 4096u
#define NR_NONE 400		/* within the table of calls, and no call */
#define BREAK_STEP 16
#define USER_LEVEL 3

static const char *const names[CALLS] = {
	[EMPTY] = "empty", [NOSYS] = "nosys", [GETPID] = "getpid",
	[GETPPID] = "getppid", [SBRK] = "sbrk", [READ] = "read", [WRITE] = "write",
	[READ1] = "read1", [WRITE1] = "write1",
};

/* Arguments and result of a call. Those of sbrk alternate between two values: `toggle` differs. */
struct request {
	uint64_t nr, a0, a1, a2, expected, toggle;
};

static struct {
	int source, target;	/* files: read, and written */
	pid_t pid;
	uintptr_t brk;	/* where the break is before and after each run */
	struct request request;	/* of the run that comes next */
	uint8_t buffer[PAGE];
} fixture;

const char *call_name(enum call call)
{
	return names[call];
}

unsigned int call_count(enum call call)
{
	if (call == READ || call == WRITE)
		return CALLS_A_RUN_PAGES;
	return CALLS_A_RUN;
}

bool loop_exists(enum call call, enum form form)
{
	return form == BARE || call != NOSYS;
}

/* No two neighbouring pages, nor bytes of one, are alike. */
static uint8_t pattern(uint64_t offset)
{
	return (uint8_t)(1 + ((offset + 1) * 0x9E3779B97F4A7C15u >> 40) % 255);
}

static void fill(uint64_t offset)
{
	for (unsigned int i = 0; i < PAGE; i++)
		fixture.buffer[i] = pattern(offset + i);
}

static int create_pages(const char *directory, const char *name)
{
	char path[128];
	int file;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (file < 0)
		measure_fail("open %s: %s", path, strerror(errno));
	for (uint64_t page = 0; page < CALLS_A_RUN_PAGES; page++) {
		fill(page * PAGE);
		if (write(file, fixture.buffer, PAGE) != PAGE)
			measure_fail("write %s: %s", path, strerror(errno));
	}
	return file;
}

static time_t second(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME_COARSE, &now);
	return now.tv_sec;
}

/*
 * At each read the kernel compares the times of the file's writing and of its first reading, their
 * seconds first. So that all boots compare alike, these are of one second and of different ticks.
 */
static int create_source(const char *directory)
{
	for (;;) {
		time_t began = second();
		int file = create_pages(directory, "source");

		measure_await_tick();
		if (pread(file, fixture.buffer, 1, 0) != 1)
			measure_fail("read %s/source: %s", directory, strerror(errno));
		if (second() == began)
			return file;
		close(file);
	}
}

void loop_prepare(const char *directory)
{
	fixture.target = create_pages(directory, "target");
	fixture.source = create_source(directory);
	fixture.pid = getpid();
	/* In the middle of a page: one bit tells the two places of the break, and no page goes. */
	fixture.brk = ((uintptr_t)sbrk(0) / PAGE + 1) * PAGE + PAGE / 2;
	if (brk((void *)fixture.brk))
		measure_fail("brk: %s", strerror(errno));
}

static struct request request_of(enum call call)
{
	uint64_t source = (uint64_t)fixture.source, target = (uint64_t)fixture.target;
	uint64_t buffer = (uintptr_t)fixture.buffer;

	switch (call) {
	case NOSYS:
		return (struct request){ .nr = NR_NONE, .expected = (uint64_t)-ENOSYS };
	case GETPID:
		return (struct request){ .nr = SYS_getpid, .expected = (uint64_t)fixture.pid };
	case GETPPID:
		return (struct request){ .nr = SYS_getppid, .expected = (uint64_t)getppid() };
	case SBRK:	/* first to the higher place; an even number of calls end at the lower */
		return (struct request){ .nr = SYS_brk, .a0 = fixture.brk,
					 .expected = fixture.brk, .toggle = BREAK_STEP };
	case READ:
		return (struct request){ SYS_read, source, buffer, PAGE, PAGE, 0 };
	case WRITE:
		return (struct request){ SYS_write, target, buffer, PAGE, PAGE, 0 };
	case READ1:
		return (struct request){ SYS_read, source, buffer, 1, 1, 0 };
	case WRITE1:
		return (struct request){ SYS_write, target, buffer, 1, 1, 0 };
	default:
		return (struct request){ 0 };
	}
}

/*
 * One loop of assembly for all calls; `instruction` is "syscall", or nothing for the empty loop.
 * The sums of levels are three times the number of calls that began or ended in user mode.
 */
#define BARE_LOOP(instruction) \
	__asm__ volatile( \
		"1:\n\t" \
		"xor %[toggle], %%rdi\n\t" \
		"xor %[toggle], %[expected]\n\t" \
		"mov %%cs, %%eax\n\tand $3, %%eax\n\tadd %%rax, %[begun]\n\t" \
		"mov %[nr], %%rax\n\t" \
		instruction \
		"xor %[expected], %%rax\n\tor %%rax, %[bad]\n\t" \
		"mov %%cs, %%eax\n\tand $3, %%eax\n\tadd %%rax, %[ended]\n\t" \
		"dec %[count]\n\tjnz 1b" \
		: [begun] "+r"(begun), [ended] "+r"(ended), [bad] "+r"(bad), \
		  [count] "+r"(count), [expected] "+r"(request.expected), "+D"(request.a0) \
		: [nr] "r"(request.nr), [toggle] "r"(request.toggle), "S"(request.a1), \
		  "d"(request.a2) \
		: "rax", "rcx", "r11", "cc", "memory")

static void run_bare(struct loop *loop)
{
	struct request request = fixture.request;
	uint64_t begun = 0, ended = 0, bad = 0, count = loop->count;

	if (loop->call == EMPTY)
		BARE_LOOP("");
	else
		BARE_LOOP("syscall\n\t");
	loop->bad = loop->call == EMPTY ? 0 : bad;
	loop->begun_user = begun / USER_LEVEL;
	loop->ended_user = ended / USER_LEVEL;
}

/* `make` is an expression with the call of a function; it is made loop->count times. */
#define LIBRARY_LOOP(wanted, make) \
	for (unsigned int i = 0; i < count; i++) { \
		begun += mode_level(); \
		bad |= (uint64_t)(make) ^ (uint64_t)(wanted); \
		ended += mode_level(); \
	}

static inline __attribute__((always_inline)) uint64_t no_call(void)
{
	uint64_t zero;

	__asm__ volatile("mov $0, %0" : "=r"(zero));
	return zero;
}

static void run_library(struct loop *loop)
{
	uint64_t begun = 0, ended = 0, bad = 0;
	unsigned int count = loop->count;

	switch (loop->call) {
	case GETPID:
		LIBRARY_LOOP(fixture.pid, getpid());
		break;
	case GETPPID:
		LIBRARY_LOOP(fixture.request.expected, getppid());
		break;
	case SBRK:	/* returns the break as it was */
		LIBRARY_LOOP(i & 1 ? fixture.brk + BREAK_STEP : fixture.brk,
			     (uintptr_t)sbrk(i & 1 ? -BREAK_STEP : BREAK_STEP));
		break;
	case READ:
		LIBRARY_LOOP(PAGE, read(fixture.source, fixture.buffer, PAGE));
		break;
	case WRITE:
		LIBRARY_LOOP(PAGE, write(fixture.target, fixture.buffer, PAGE));
		break;
	case READ1:
		LIBRARY_LOOP(1, read(fixture.source, fixture.buffer, 1));
		break;
	case WRITE1:
		LIBRARY_LOOP(1, write(fixture.target, fixture.buffer, 1));
		break;
	default:
		LIBRARY_LOOP(0, no_call());
		break;
	}
	loop->bad = bad;
	loop->begun_user = begun / USER_LEVEL;
	loop->ended_user = ended / USER_LEVEL;
}

void loop_begin(struct loop *loop)
{
	fixture.request = request_of(loop->call);
	if (lseek(fixture.source, 0, SEEK_SET) || lseek(fixture.target, 0, SEEK_SET))
		measure_fail("lseek: %s", strerror(errno));
	if (loop->call == WRITE || loop->call == WRITE1)
		fill(PAGE);	/* not what the first page held */
	else
		memset(fixture.buffer, 0, PAGE);
}

void loop_run(void *loop)
{
	struct loop *one = loop;

	if (one->form == BARE)
		run_bare(one);
	else
		run_library(one);
}

/* The bytes that the last call of a run read or wrote, compared with what they must be. */
static void check_bytes(const struct loop *loop, const char *mechanism)
{
	bool whole = loop->call == READ || loop->call == WRITE;
	uint64_t size = whole ? PAGE : 1, last = (loop->count - 1) * size;
	bool wrote = loop->call == WRITE || loop->call == WRITE1;
	uint8_t found[PAGE];

	if (wrote && pread(fixture.target, found, size, (off_t)last) != (ssize_t)size)
		measure_fail("pread: %s", strerror(errno));
	for (uint64_t i = 0; i < size; i++) {
		uint8_t byte = wrote ? found[i] : fixture.buffer[i];
		uint8_t wanted = pattern((wrote ? PAGE : last) + i);

		if (byte != wanted)
			measure_fail("%s by %s: byte %lu is %u, not %u", names[loop->call],
				     mechanism, i, byte, wanted);
	}
	if (!wrote)
		return;
	for (uint64_t offset = 0; offset < loop->count * size; offset += PAGE) {
		fill(offset);
		if (pwrite(fixture.target, fixture.buffer, PAGE, (off_t)offset) != PAGE)
			measure_fail("pwrite: %s", strerror(errno));
	}
}

void loop_check(const struct loop *loop, const char *mechanism)
{
	if (loop->bad)
		measure_fail("%s by %s: a wrong result (differs by 0x%lx)", names[loop->call],
			     mechanism, loop->bad);
	if (loop->call >= READ)
		check_bytes(loop, mechanism);
	if (loop->call == SBRK && (uintptr_t)syscall(SYS_brk, 0) != fixture.brk)
		measure_fail("sbrk by %s: the break is not back where it was", mechanism);
}
