/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * NMIs at any instruction: in user code at level 0, in the first and last instructions of calls,
 * in the stubs of other interrupts, on each CPU thousands a second, with faults and breakpoints in
 * their handlers. Calls, faults, timers, switches and registers stay right all the while.
 */
#include "random.h"
#include "supervisor.h"

#define MODULE_FILE "/nmi_storm.ko"
#define MODULE "nmi_storm"
#define COUNTS "/sys/module/" MODULE "/parameters/"
#define RUNNERS 4
#define TIME_MS 15000		/* at most */
#define NMIS 3000
#define NMIS_INSIDE 20		/* of them, in user code in supervisor mode */

static volatile bool *end;

static long count(const char *name)
{
	char path[128], text[64];

	snprintf(path, sizeof(path), COUNTS "%s", name);
	CHECK(read_file(path, text, sizeof(text)) > 0);
	return atol(text);
}

static void on_fault(int signal)
{
	(void)signal;
	CHECK_EQ(cpl(), 3);
	_exit(42);
}

/* A child that dies by a fault of its own, found by its handler. */
static void fault(void)
{
	on_signal(SIGSEGV, on_fault, 0);
	CHECK_EQ(switch_supervisor(0), 0);
	reach_supervisor();
	__asm__ volatile("movl $1, 8" : : : "memory");
}

static void call_many(struct random *random)
{
	uint64_t value = random_next(random), kept = value;
	long pid = getpid();

	for (int i = 0; i < 500; i++) {
		__asm__ volatile("" : "+r"(kept));
		CHECK_EQ(sys(SYS_getpid), pid);
	}
	CHECK_EQ(kept, value);
}

static void touch_pages(void)
{
	char *pages = MUST(mmap(NULL, 16 * 4096, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));

	for (int i = 0; i < 16; i++) {
		reach_supervisor();
		pages[i * 4096] = 1;
	}
	CHECK_EQ(sys(SYS_munmap, pages, 16 * 4096), 0);
}

static void run(uint64_t seed)
{
	struct random random = random_seeded(seed);
	struct timespec nap = { .tv_nsec = 50000 };

	enter_supervisor(0);
	while (!*end) {
		switch (random_below(&random, 6)) {
		case 0:
			call_many(&random);
			break;
		case 1:
			touch_pages();
			break;
		case 2:
			CHECK_EQ(sys(SYS_nanosleep, &nap, NULL), 0);
			break;
		case 3:
			reach_supervisor();
			for (volatile int i = 0; i < 100000; i++)
				;
			break;
		case 4:
			CHECK_EXITED(child_run(fault), 42);
			break;
		default:
			CHECK_EQ(switch_user(0), 0);
			CHECK_EQ(switch_supervisor(0), 0);
		}
	}
}

/* Of the runners, now and before they were last switched back. */
static uint64_t demotions_by_nmi(const pid_t *children)
{
	uint64_t sum = process_counts(PROCESSES_ENDED).demotions[TL_DEMOTED_NMI];
	struct tl_process process;

	for (int i = 0; i < RUNNERS; i++)
		if (process_find(children[i], &process))
			sum += process.demotions[TL_DEMOTED_NMI];
	return sum;
}

static void storm_begin(void)
{
	int file = open(MODULE_FILE, O_RDONLY);

	if (file < 0)
		SKIP("%s is not in this guest", MODULE_FILE);
	CHECK_EQ(sys(SYS_finit_module, file, "period_us=120", 0), 0);
	close(file);
}

int main(void)
{
	pid_t children[RUNNERS];
	uint64_t deadline = now_ms() + TIME_MS, before;
	long nmis;

	supervisor_need();
	end = shared_memory(sizeof(*end));
	for (int i = 0; i < RUNNERS; i++) {
		children[i] = MUST(fork());
		if (children[i] == 0) {
			run((uint64_t)i + 1);
			_exit(0);
		}
	}
	before = demotions_by_nmi(children);
	storm_begin();
	do {
		sleep_ms(100);
		nmis = count("nmis");
	} while (now_ms() < deadline &&
		 (nmis < NMIS || demotions_by_nmi(children) - before < NMIS_INSIDE));
	fprintf(stderr, "%ld NMIs, %ld in user mode, %ld in the kernel on a user's stack, "
		"%ld faults and %ld breakpoints in them\n", nmis, count("in_user_mode"),
		count("on_user_stack"), count("faults"), count("breakpoints"));
	CHECK(nmis >= NMIS);
	CHECK(count("faults") >= nmis && count("breakpoints") >= nmis / 2);
	CHECK(demotions_by_nmi(children) - before >= NMIS_INSIDE);
	CHECK_EQ(sys(SYS_delete_module, MODULE, 0), 0);
	*end = true;
	for (int i = 0; i < RUNNERS; i++)
		CHECK_EXITED(child_wait(children[i]), 0);
	return 0;
}
