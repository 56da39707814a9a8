// SPDX-License-Identifier: GPL-2.0-only
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
#define TIME_MS 300000		/* at most */
#define ONCE_MS 1500
#define PERIOD_US 120
#define NMIS 3000
#define NMIS_INSIDE 20		/* of them, in user code in supervisor mode */
#define NMIS_INSIDE_ONCE (NMIS_INSIDE / 4)	/* fewer, and the next storm is slower, */
#define NMIS_ONCE (NMIS / 3)			/* unless it has had fewer NMIs than this */

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
	CHECK_EQ(raw_switch_supervisor(0), 0);
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
			for (volatile int i = 0; i < 1000000; i++)
				;
			break;
		case 4:
			CHECK_EXITED(child_run(fault), 42);
			break;
		default:
			CHECK_EQ(raw_switch_user(0), 0);
			CHECK_EQ(raw_switch_supervisor(0), 0);
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

struct storm {
	long nmis, in_user_mode, on_user_stack, faults, breakpoints;
};

static void storm_add(struct storm *sum)
{
	sum->nmis += count("nmis");
	sum->in_user_mode += count("in_user_mode");
	sum->on_user_stack += count("on_user_stack");
	sum->faults += count("faults");
	sum->breakpoints += count("breakpoints");
}

/* The module for a while; it is gone again after it. */
static void storm_once(int file, unsigned int period_us, struct storm *sum)
{
	char parameters[64];

	snprintf(parameters, sizeof(parameters), "period_us=%u", period_us);
	sys(SYS_delete_module, MODULE, 0);	/* of a test that failed */
	CHECK_EQ(sys(SYS_finit_module, file, parameters, 0), 0);
	sleep_ms(ONCE_MS);
	storm_add(sum);
	CHECK_EQ(sys(SYS_delete_module, MODULE, 0), 0);
}

/*
 * Until enough has happened or time is up. Where NMIs come so fast that the machine does hardly
 * anything else, none of them meets user code; so they come more slowly until enough do, then
 * faster again. Where they are few, slower ones would be fewer still.
 */
static struct storm storm_run(int file, const pid_t *children, uint64_t *inside)
{
	uint64_t deadline = now_ms() + TIME_MS, before = demotions_by_nmi(children);
	unsigned int period_us = PERIOD_US;
	struct storm sum = { 0 };

	*inside = 0;
	do {
		uint64_t inside_before = *inside;
		long nmis_before = sum.nmis;

		storm_once(file, period_us, &sum);
		*inside = demotions_by_nmi(children) - before;
		if (*inside - inside_before < NMIS_INSIDE_ONCE &&
		    sum.nmis - nmis_before >= NMIS_ONCE)
			period_us *= 3;
		else if (period_us > PERIOD_US)
			period_us /= 3;
	} while (now_ms() < deadline && (sum.nmis < NMIS || *inside < NMIS_INSIDE));
	return sum;
}

int main(void)
{
	int file = open(MODULE_FILE, O_RDONLY);
	pid_t children[RUNNERS];
	struct storm storm;
	uint64_t inside;

	if (file < 0)
		SKIP("%s is not in this guest", MODULE_FILE);
	supervisor_need();
	if (sysconf(_SC_NPROCESSORS_CONF) < 2)
		SKIP("a CPU's NMIs come from another, and there is none");
	CHECK_EQ(sysconf(_SC_NPROCESSORS_ONLN), sysconf(_SC_NPROCESSORS_CONF));
	end = shared_memory(sizeof(*end));
	for (int i = 0; i < RUNNERS; i++) {
		children[i] = MUST(fork());
		if (children[i] == 0) {
			run((uint64_t)i + 1);
			_exit(0);
		}
	}
	storm = storm_run(file, children, &inside);
	*end = true;
	for (int i = 0; i < RUNNERS; i++)
		CHECK_EXITED(child_wait(children[i]), 0);

	fprintf(stderr, "%ld NMIs, %ld in user mode, %ld in the kernel on a user's stack, "
		"%ld faults and %ld breakpoints in them; %llu in user code in supervisor mode\n",
		storm.nmis, storm.in_user_mode, storm.on_user_stack, storm.faults,
		storm.breakpoints, (unsigned long long)inside);
	CHECK(storm.nmis >= NMIS);
	CHECK(storm.faults >= storm.nmis && storm.breakpoints >= storm.nmis / 2);
	CHECK(inside >= NMIS_INSIDE);
	return 0;
}
