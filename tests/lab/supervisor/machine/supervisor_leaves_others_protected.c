// SPDX-License-Identifier: GPL-2.0-only
/*
 * SMEP, SMAP, LASS and the tracking of indirect branches (IBT) are off on a CPU only while a thread
 * in supervisor mode is on it. Processes are switched there and back all the time and yield to each
 * other; a thread in user mode on each CPU looks every 10 ms: CR4 and MSR_IA32_S_CET are as before,
 * and a stray jump of the kernel is caught. The module protection.ko reads them on its CPU.
 */
#include <sched.h>
#include <sys/syscall.h>

#include "supervisor.h"

#define MODULE "/protection.ko"
#define STATE "/sys/module/protection/parameters/state"
#define STORMERS 3
#define LOOKS 100
#define PROTECTION (1ul << 20 | 1ul << 21 | 1ul << 23 | 1ul << 27)	/* SMEP SMAP CET LASS */

struct state {
	unsigned long cr4, s_cet, caught;
};

static struct state before;
static volatile struct shared {
	uint32_t stop;
	uint64_t switches[STORMERS];
} *shared;

static void module_insert(void)
{
	long file = sys(SYS_openat, AT_FDCWD, MODULE, O_RDONLY | O_CLOEXEC);

	CHECK(file >= 0);
	sys(SYS_delete_module, "protection", 0);	/* of a test that failed */
	CHECK_EQ(sys(SYS_finit_module, file, "", 0), 0);
	sys(SYS_close, file);
}

static struct state state(void)
{
	struct state now;
	char text[64];

	CHECK(read_file(STATE, text, sizeof(text)) > 0);
	CHECK_EQ(sscanf(text, "%lx %lx %lx", &now.cr4, &now.s_cet, &now.caught), 3);
	now.cr4 &= PROTECTION;
	return now;
}

/* In supervisor mode and out of it, with calls and yields between: a child is not pinned. */
static void storm(int number)
{
	while (!shared->stop) {
		CHECK_EQ(raw_switch_supervisor(0), 0);
		for (int i = 0; i < 20; i++) {
			sys(SYS_getppid);
			sched_yield();
		}
		CHECK_EQ(raw_switch_user(0), 0);
		shared->switches[number]++;
		if (shared->switches[number] % 16 == 0)
			sleep_ms(1);
	}
}

static void storm_0(void) { storm(0); }
static void storm_1(void) { storm(1); }
static void storm_2(void) { storm(2); }

static void look(int cpu)
{
	struct state now;

	pin_to_cpu(cpu);
	for (int i = 0; i < LOOKS; i++) {
		sleep_ms(10);
		now = state();
		CHECK_EQ(now.cr4, before.cr4);
		CHECK_EQ(now.s_cet, before.s_cet);
		CHECK_EQ(now.caught, before.caught);
	}
}

/*
 * In supervisor mode itself, they are off: else the looks above would prove nothing. A flush of
 * the whole TLB, as after a module's loading, turns SMEP and SMAP on until the next fault: look
 * anew then.
 */
static void off_in_supervisor_mode(void)
{
	struct state now;
	int looks = 0;

	enter_supervisor(0);
	do {
		now = state();
	} while (now.cr4 & ~(1ul << 23) && ++looks < LOOKS);
	CHECK_EQ(now.cr4 & ~(1ul << 23), 0);
	CHECK_EQ(now.s_cet & 4, 0);
	CHECK_EQ(now.caught, 0);
	CHECK_EQ(before.s_cet & ~4ul, now.s_cet);
}

int main(void)
{
	static void (*const storms[STORMERS])(void) = { storm_0, storm_1, storm_2 };
	pid_t pids[STORMERS], inside;

	supervisor_need();
	module_insert();
	before = state();
	printf("CR4 0x%lx, S_CET 0x%lx, a stray jump is caught: %lu\n", before.cr4, before.s_cet,
	       before.caught);
	CHECK_EQ(before.caught, before.s_cet >> 2 & 1);
	inside = child_start(off_in_supervisor_mode);
	CHECK_EXITED(child_wait(inside), 0);
	shared = shared_memory(sizeof(*shared));
	for (int i = 0; i < STORMERS; i++)
		pids[i] = child_start(storms[i]);
	look(0);
	if (sysconf(_SC_NPROCESSORS_ONLN) > 1)
		look(1);
	shared->stop = 1;
	for (int i = 0; i < STORMERS; i++) {
		CHECK_EXITED(child_wait(pids[i]), 0);
		CHECK(shared->switches[i] > 0);
	}
	CHECK_EQ(sys(SYS_delete_module, "protection", O_NONBLOCK), 0);
	return 0;
}
