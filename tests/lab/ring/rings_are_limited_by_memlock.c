/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The attack: rings that are not mapped are in no process's account, so one user could fill the
 * memory and have others' processes killed for it. The rings of a user, over all processes, are
 * bounded by RLIMIT_MEMLOCK, and what is closed is free again; CAP_IPC_LOCK lifts the limit.
 */
#include <sys/prctl.h>
#include <sys/resource.h>

#include "memory.h"
#include "ring.h"

#define STRANGER 1234		/* no other test's processes: the sum is the user's */
#define PAGES 16ul		/* of the limit */
#define LIMIT (PAGES * 4096)
#define TRIES 64

static void become_stranger(void)
{
	struct rlimit limit = { LIMIT, LIMIT };

	MUST(setrlimit(RLIMIT_MEMLOCK, &limit));
	CHECK_EQ(sys(SYS_setresuid, STRANGER, STRANGER, STRANGER), 0);
}

/* Opens rings of one page until one is refused; how many there are. */
static int open_rings(int *fds)
{
	int made = 0;

	for (; made < TRIES; made++) {
		long error;

		fds[made] = device_open();
		error = device_setup(fds[made], 32, 0, 0);
		if (!error)
			continue;
		CHECK_EQ(error, -ENOMEM);
		close(fds[made]);
		break;
	}
	return made;
}

static long pinned_kb(void)
{
	static char text[8192];

	MUST(prctl(PR_SET_DUMPABLE, 1));
	CHECK(read_file("/proc/self/status", text, sizeof(text)) > 0);
	return memory_field(text, "VmPin:");
}

static void with_a_second_process(void)
{
	int fds[TRIES], pid;

	become_stranger();
	CHECK_EQ(open_rings(fds), PAGES);
	CHECK_EQ(pinned_kb(), LIMIT / 1024);
	pid = MUST(fork());
	if (pid == 0) {
		CHECK_EQ(device_setup(device_open(), 1, 0, 0), -ENOMEM);
		_exit(0);
	}
	CHECK_EXITED(child_wait(pid), 0);
	CHECK_EQ(device_setup(device_open(), TL_ENTRIES_MAX, TL_SETUP_WORKERS, 0), -ENOMEM);
	for (unsigned int i = 0; i < PAGES; i++)
		close(fds[i]);
	CHECK_EQ(pinned_kb(), 0);
	CHECK_EQ(open_rings(fds), PAGES);
}

/* What a process leaves open is given back at its end, though it ends by a signal. */
static void killed_with_rings(void)
{
	int fds[TRIES];

	become_stranger();
	CHECK_EQ(open_rings(fds), PAGES);
	kill(getpid(), SIGKILL);
}

static void with_capability(void)
{
	struct rlimit limit = { 0, 0 };
	int fds[TRIES];

	MUST(setrlimit(RLIMIT_MEMLOCK, &limit));
	CHECK_EQ(open_rings(fds), TRIES);
}

int main(void)
{
	CHECK_EXITED(child_run(with_a_second_process), 0);
	CHECK_KILLED(child_run(killed_with_rings), SIGKILL);
	CHECK_EXITED(child_run(with_a_second_process), 0);
	CHECK_EXITED(child_run(with_capability), 0);
	return 0;
}
