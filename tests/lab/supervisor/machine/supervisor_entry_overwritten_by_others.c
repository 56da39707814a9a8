// SPDX-License-Identifier: GPL-2.0-only
/*
 * Others write MSR_LSTAR, too (KVM puts back what it found). The kernel's entry under a thread in
 * supervisor mode costs it nothing but the mode, until it is next scheduled in; the module's entry
 * on a CPU whose threads are all in user mode hands their calls to the kernel, which makes them.
 */
#include <sys/resource.h>

#include "supervisor.h"

#define MSR_LSTAR 0xc0000082
#define ROUNDS 200
#define CALLS 2000

static int msr_fd;
static uint64_t kernel_entry, module_entry;

static uint64_t lstar_get(void)
{
	uint64_t value;

	CHECK_EQ(pread(msr_fd, &value, sizeof(value), MSR_LSTAR), sizeof(value));
	return value;
}

static void lstar_set(uint64_t value)
{
	CHECK_EQ(pwrite(msr_fd, &value, sizeof(value), MSR_LSTAR), sizeof(value));
}

static volatile uint32_t *phase;

/* In supervisor mode on CPU 1 until phase 1, calling all the time. */
static void target(void)
{
	long pid = getpid();

	pin_to_cpu(1);
	enter_supervisor(0);
	*phase = 1;
	while (*phase < 2)
		CHECK_EQ(sys(SYS_getpid), pid);
}

/* From CPU 0, the entry of CPU 1 is put back while a switched thread runs there. */
static void kernel_entry_under_switched(void)
{
	struct timespec nap = { .tv_nsec = 1000000 };
	pid_t pid;

	*phase = 0;
	pid = child_start(target);
	while (*phase < 1)
		sched_yield();
	for (int i = 0; i < ROUNDS && !module_entry; i++) {
		uint64_t entry = lstar_get();

		if (entry != kernel_entry)
			module_entry = entry;
	}
	CHECK(module_entry);
	for (int i = 0; i < ROUNDS; i++) {
		lstar_set(kernel_entry);
		nanosleep(&nap, NULL);
	}
	*phase = 2;
	CHECK_EXITED(child_wait(pid), 0);
}

/* How often this thread was scheduled out. */
static long times_out(void)
{
	struct rusage usage;

	MUST(getrusage(RUSAGE_THREAD, &usage));
	return usage.ru_nvcsw + usage.ru_nivcsw;
}

/* A nap that is over before it begins leaves the thread where it is: then another. */
static void be_scheduled_out(void)
{
	long before = times_out();

	do
		sleep_ms(2);
	while (times_out() == before);
}

/* Takes the entry away; false if others had the CPU before its effect could be seen. */
static bool user_mode_without_entry(void)
{
	long before = times_out();
	unsigned int level;

	lstar_set(kernel_entry);
	sys(SYS_getppid);
	sys(SYS_getppid);
	level = cpl();
	if (times_out() != before)
		return false;
	CHECK_EQ(level, 3);
	return true;
}

/* Scheduled out and in again, a thread whose entry was taken is back in supervisor mode. */
static void comes_back(void)
{
	pin_to_cpu(1);
	enter_supervisor(0);
	for (int i = 0; i < 50; i++) {
		while (!user_mode_without_entry())
			reach_supervisor();
		be_scheduled_out();
		reach_supervisor();
	}
}

static void call_many(void)
{
	long pid = getpid(), tid = sys(SYS_gettid);

	pin_to_cpu(1);
	for (int i = 0; i < CALLS; i++) {
		CHECK_EQ(sys(SYS_getpid), pid);
		CHECK_EQ(sys(SYS_gettid), tid);
		CHECK_EQ(sys(SYS_lseek, -1, i, 0), -EBADF);
		CHECK_EQ(cpl(), 3);
		if (i % 500 == 0)
			CHECK_EXITED(child_wait(child_start(sync)), 0);
	}
}

/* Nobody is switched: the module's entry meets none of its own. */
static void module_entry_under_others(void)
{
	for (int i = 0; i < 5; i++) {
		pid_t pid;

		CHECK_EQ(lstar_get(), kernel_entry);
		lstar_set(module_entry);
		pid = child_start(call_many);
		CHECK_EXITED(child_wait(pid), 0);
		CHECK_EQ(lstar_get(), module_entry);
		lstar_set(kernel_entry);
	}
}

int main(void)
{
	supervisor_need();
	msr_fd = open("/dev/cpu/1/msr", O_RDWR);
	if (msr_fd < 0)
		SKIP("no /dev/cpu/1/msr: %s", strerror(errno));
	pin_to_cpu(0);
	phase = shared_memory(sizeof(*phase));
	kernel_entry = lstar_get();
	kernel_entry_under_switched();
	CHECK_EXITED(child_run(comes_back), 0);
	module_entry_under_others();
	enter_supervisor(0);
	return 0;
}
