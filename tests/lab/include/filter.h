/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Installs seccomp filters of one rule each, for tests that try to evade them by a batch. The
 * kernel applies all installed filters, so a test installs one for each rule.
 */
#ifndef TL_TEST_FILTER_H
#define TL_TEST_FILTER_H

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

#include "check.h"

#ifdef __x86_64__
#define FILTER_ARCH AUDIT_ARCH_X86_64
#else
#define FILTER_ARCH AUDIT_ARCH_AARCH64
#endif
#define FILTER_ANY_ARGUMENT UINT32_MAX

/*
 * Call nr with first argument arg0 (FILTER_ANY_ARGUMENT: with any) gets `action`, all else is
 * allowed; a call of another table, such as a 32-bit one, kills the process. Returns what seccomp()
 * does: a listener with SECCOMP_FILTER_FLAG_NEW_LISTENER.
 */
static inline int filter_install(long nr, uint32_t arg0, uint32_t action, unsigned int flags)
{
	uint32_t mask = arg0 == FILTER_ANY_ARGUMENT ? 0 : UINT32_MAX;
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, FILTER_ARCH, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)nr, 0, 4),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
		BPF_STMT(BPF_ALU | BPF_AND | BPF_K, mask),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, arg0 & mask, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, action),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(code) / sizeof(*code), code };

	MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	return MUST((int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program));
}

/* On the calling thread alone: call nr gets `action`. */
static inline void filter_call(long nr, uint32_t action)
{
	filter_install(nr, FILTER_ANY_ARGUMENT, action, 0);
}

/*
 * Waits until the thread sleeps whose ID appears in *tid, then gives all threads a filter that ends
 * the thread which makes call nr.
 */
static inline void filter_once_asleep(const pid_t *tid, long nr)
{
	while (!__atomic_load_n(tid, __ATOMIC_ACQUIRE))
		sched_yield();
	wait_asleep(*tid);
	filter_install(nr, FILTER_ANY_ARGUMENT, SECCOMP_RET_KILL_THREAD,
		       SECCOMP_FILTER_FLAG_TSYNC);
}

#endif /* TL_TEST_FILTER_H */
