/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A user without rights, and what it tries against a process of its own user that is switched: to
 * write to its memory, by every way.
 */
#ifndef TL_TEST_STRANGER_H
#define TL_TEST_STRANGER_H

#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

#include "supervisor.h"

#define STRANGER 1000

static inline void become_stranger(void)
{
	CHECK_EQ(sys(SYS_setresgid, STRANGER, STRANGER, STRANGER), 0);
	CHECK_EQ(sys(SYS_setresuid, STRANGER, STRANGER, STRANGER), 0);
	MUST(prctl(PR_SET_DUMPABLE, 1));
}

/*
 * As a process of the same user: 0 if the memory of the thread, which was forked from this program,
 * can be written to by every way, else -1.
 */
static inline int attack(pid_t target)
{
	static volatile char byte = 1;
	struct iovec here = { (void *)&byte, 1 }, there = { (void *)&byte, 1 };
	char path[64];
	long fd, written, traced;
	int status;

	snprintf(path, sizeof(path), "/proc/%d/mem", (int)target);
	fd = sys(SYS_openat, AT_FDCWD, path, O_RDWR);
	written = sys(SYS_process_vm_writev, target, &here, 1, &there, 1, 0);
	traced = sys(SYS_ptrace, PTRACE_SEIZE, target, 0, 0);
	if (traced == 0) {
		MUST(ptrace(PTRACE_INTERRUPT, target, 0, 0));
		MUST(waitpid(target, &status, __WALL));
		MUST(ptrace(PTRACE_DETACH, target, 0, 0));
	}
	if (fd >= 0)
		close((int)fd);
	if (fd >= 0 && written == 1 && traced == 0)
		return 0;
	CHECK(fd == -EACCES || fd == -EPERM);
	CHECK_EQ(written, -EPERM);
	CHECK_EQ(traced, -EPERM);
	return -1;
}

static inline int attack_as_stranger(pid_t target)
{
	pid_t pid = MUST(fork());
	int status;

	if (pid == 0) {
		become_stranger();
		_exit(attack(target) ? 3 : 4);
	}
	status = child_wait(pid);
	CHECK(WIFEXITED(status) && (WEXITSTATUS(status) == 3 || WEXITSTATUS(status) == 4));
	return WEXITSTATUS(status) == 3 ? -1 : 0;
}

/* A process of the stranger's that has attached to the thread, until it is killed. */
static inline pid_t trace_as_stranger(pid_t thread)
{
	volatile int *attached = shared_memory(sizeof(*attached));
	pid_t tracer = MUST(fork());

	if (tracer == 0) {
		become_stranger();
		MUST(ptrace(PTRACE_SEIZE, thread, 0, 0));
		*attached = 1;
		for (;;)
			pause();
	}
	WAIT_UNTIL(*attached, "no tracer after %d ms", WAIT_MS);
	return tracer;
}

/* A stranger that has attached to the thread could write, too: the switch is refused meanwhile. */
static inline void check_traced_is_refused(pid_t pid, pid_t thread)
{
	struct tl_switch request = {
		.size = sizeof(request), .mode = TL_MODE_SUPERVISOR, .pid = pid,
		.flags = TL_SWITCH_ANY_USER,
	};
	pid_t tracer = trace_as_stranger(thread);

	CHECK_EQ(switch_ioctl(&request), -EPERM);
	CHECK_EQ(request.refusal, TL_REFUSED_TRACED);
	MUST(kill(tracer, SIGKILL));
	child_wait(tracer);
}

#endif /* TL_TEST_STRANGER_H */
