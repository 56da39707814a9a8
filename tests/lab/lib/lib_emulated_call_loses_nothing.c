// SPDX-License-Identifier: GPL-2.0-only
/*
 * A seccomp filter traps a call in the middle of a batch and the handler of SIGSYS rewrites the
 * return register, as emulators do. The library believes the ring: every other call is made once,
 * the trapped one says -ENOSYS, and flushing comes to an end. If the call that enters the module is
 * trapped, the library makes the calls itself, and says why.
 */
#include "check.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <trapless.h>
#include <ucontext.h>

static const long long lies[] = { 0, -1, -EBUSY, -EINTR, 1, 8, 1000000, -EPERM };
static volatile sig_atomic_t trapped;

static void handler(int signal, siginfo_t *info, void *context)
{
	ucontext_t *user = context;

	(void)signal;
	if (info->si_syscall == SYS_getpgrp)
		user->uc_mcontext.gregs[REG_RAX] = lies[trapped++ % (int)(sizeof(lies) / 8)];
	else if (info->si_syscall == SYS_lseek)
		user->uc_mcontext.gregs[REG_RAX] = 0;
}

static void install_filter(unsigned int nr)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { .len = 4, .filter = code };
	struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO };

	MUST(sigaction(SIGSYS, &action, NULL));
	MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}

static int fd, writes;

/* Eight calls, of which the one in slot `at` is trapped; as a program or as a plain batch. */
static void flush_around(struct tl_batch *batch, int at, bool program)
{
	int result;

	for (int i = 0; i < 8; i++) {
		if (i == at)
			TL_ADD(batch, SYS_getpgrp);
		else
			TL_ADD(batch, SYS_write, fd, "w", 1);
	}
	if (program)
		CHECK_EQ(tl_batch_jump(batch, 0, TL_IF_ALWAYS, 1), 0);
	for (int flushes = 0; tl_batch_queued(batch); flushes++) {
		CHECK(flushes < 3);
		result = tl_batch_flush(batch);
		CHECK(result > 0 || (program && result == -EINTR));
	}
	for (unsigned int i = 0; i < 8; i++)
		CHECK_EQ(tl_batch_result(batch, i), (int)i == at ? -ENOSYS : 1);
	writes += 7;
}

static void entry_is_trapped(void)
{
	install_filter(SYS_lseek);
	for (int program = 0; program < 2; program++) {
		struct tl_batch *batch;

		CHECK_EQ(tl_batch_create(&batch, 8, TL_MODULE), 0);
		CHECK(!tl_batch_reason(batch));
		for (int call = 0; call < 2; call++)
			TL_ADD(batch, SYS_getppid);
		if (program)
			CHECK_EQ(tl_batch_jump(batch, 0, TL_IF_ALWAYS, 1), 0);
		CHECK_EQ(tl_batch_flush(batch), 2);
		CHECK_EQ(tl_batch_result(batch, 1), getppid());
		CHECK(strstr(tl_batch_reason(batch), "SIGSYS"));
		tl_batch_destroy(batch);
	}
}

int main(void)
{
	struct tl_batch *batch;
	int traps = 0;

	CHECK_EXITED(child_run(entry_is_trapped), 0);

	fd = MUST(memfd_create("written", 0));
	CHECK_EQ(tl_batch_create(&batch, 8, TL_MODULE), 0);
	install_filter(SYS_getpgrp);
	for (int at = 0; at < 8; at++) {
		for (int lie = 0; lie < 8; lie++) {
			flush_around(batch, at, false);
			flush_around(batch, at, true);
			traps += 2;
		}
	}
	CHECK_EQ(trapped, traps);
	CHECK_EQ(lseek(fd, 0, SEEK_END), writes);
	tl_batch_destroy(batch);
	return 0;
}
