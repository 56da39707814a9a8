// SPDX-License-Identifier: GPL-2.0-only
/*
 * Call numbers that are none, of another table or with dirt in their upper half are answered in
 * supervisor mode as in user mode; so are the 32-bit gate, the page of old time calls, and calls
 * whose arguments are bad addresses.
 */
#include "int80.h"
#include "supervisor.h"

#define VSYSCALL_TIME 0xffffffffff600400ul
#define X32 0x40000000l

static const long numbers[] = {
	499, 500, 511, 512, 513, 0x7fffffff, 0x80000000l, 0xffffffffl, -1, -2, -4096, INT64_MIN,
	X32, X32 | SYS_getpid, X32 | 512, 0x100000000l | SYS_getpid, 0x100000000l | 512,
	(long)0xdead000000000000ul | SYS_getpid, (long)0xffffffff00000000ul | SYS_getppid,
};

#define NUMBERS (sizeof(numbers) / sizeof(*numbers))

/* A restarted call's number could leak from one to the next: each is followed by a good one. */
static void ask_all(long results[NUMBERS])
{
	for (size_t i = 0; i < NUMBERS; i++) {
		results[i] = sys(numbers[i]);
		CHECK_EQ(sys(SYS_getpid), getpid());
	}
}

static void bad_addresses(void)
{
	static const unsigned long addresses[] = {
		8, 0x123456789000, 0x8000000000000000, 0xffff888000000000, 0xffffffff81000000,
		0xfffffffffffff000,
	};
	int zero = MUST(open("/dev/zero", O_RDONLY));

	for (size_t i = 0; i < sizeof(addresses) / sizeof(*addresses); i++) {
		reach_supervisor();
		CHECK_EQ(sys(SYS_read, zero, addresses[i], 8), -EFAULT);
		CHECK_EQ(sys(SYS_openat, AT_FDCWD, addresses[i], O_RDONLY), -EFAULT);
		CHECK_EQ(sys(SYS_clock_gettime, CLOCK_MONOTONIC, addresses[i]), -EFAULT);
	}
	close(zero);
}

static void compat_gate(void)
{
	struct tl_process before = process_counts(getpid()), after;

	for (int i = 0; i < 1000; i++) {
		reach_supervisor();
		CHECK_EQ(int80(INT80_GETPID, 0, 0, 0), getpid());
		CHECK_EQ(sys(SYS_getpid), getpid());
	}
	after = process_counts(getpid());
	CHECK_WITHIN(demoted(&before, &after, TL_DEMOTED_COMPAT_CALL), 900, 1000);
}

static long vsyscall_time(void)
{
	return ((long (*)(long *))VSYSCALL_TIME)(NULL);
}

static void vsyscall_try(void)
{
	signal(SIGSEGV, SIG_DFL);
	CHECK(vsyscall_time() > 0);
}

static void vsyscall_page(void)
{
	if (!WIFEXITED(child_run(vsyscall_try)))
		return;		/* the kernel has none */
	for (int i = 0; i < 1000; i++) {
		reach_supervisor();
		CHECK_WITHIN(vsyscall_time() - time(NULL), -2, 2);
	}
}

int main(void)
{
	long want[NUMBERS], got[NUMBERS];

	ask_all(want);
	CHECK_EQ(want[2], -ENOSYS);
	enter_supervisor(0);
	for (int round = 0; round < 200; round++) {
		ask_all(got);
		for (size_t i = 0; i < NUMBERS; i++)
			if (got[i] != want[i])
				FAIL("call 0x%lx: %ld, in user mode %ld", numbers[i], got[i],
				     want[i]);
	}
	bad_addresses();
	if (WIFEXITED(child_run(int80_try)))
		compat_gate();
	vsyscall_page();
	reach_supervisor();
	return 0;
}
