// SPDX-License-Identifier: GPL-2.0-only
/*
 * The library where a sandbox refuses calls of its own: words of programs without process_vm_readv
 * and process_vm_writev, objects without MADV_WIPEONFORK, and calls that nothing can replace, whose
 * error is then the function's. Each call is refused as unknown and as forbidden.
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "lib_check.h"

static int refusal;	/* what refused calls return */

static void install(const struct sock_filter *code, unsigned short n)
{
	struct sock_fprog program = { .len = n, .filter = (struct sock_filter *)(uintptr_t)code };

	MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}

static void refuse(int nr)
{
	const struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned int)nr, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned int)refusal),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};

	install(code, sizeof(code) / sizeof(*code));
}

static void refuse_advice(unsigned int advice)
{
	const struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, advice, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned int)refusal),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};

	install(code, sizeof(code) / sizeof(*code));
}

/* ---- Words of memory ----------------------------------------------------------------------- */

static int open_files(void)
{
	int n = 0;

	for (int fd = 0; fd < 64; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void words_are_read_and_written(void)
{
	static const uint64_t constant = 40;
	struct tl_batch *batch = batch_new(16);
	/* The last word of a page, before one that is not there; and one that may only be read. */
	const size_t bytes = (size_t)getpagesize();
	char *page = mmap(NULL, 2 * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			  0);
	uint64_t word = 0, *last = (void *)(page + bytes - 8);
	uint32_t half = 7;
	int files = open_files();

	refuse(SYS_process_vm_readv);
	refuse(SYS_process_vm_writev);
	MUST(munmap(page + bytes, bytes));
	*last = 5;
	TL_ADD(batch, TL_NR_STORE, &word, 7);
	TL_ADD(batch, TL_NR_INCREASE, &word, 2);
	TL_ADD(batch, SYS_dup3 | TL_WORD32(0) | TL_WORD64(1), &half, last);
	TL_ADD(batch, SYS_dup3 | TL_WORD64(0), page + bytes - 4, 1);
	TL_ADD(batch, SYS_dup3 | TL_WORD64(0), 8, 1);
	TL_ADD(batch, TL_NR_INCREASE, page + bytes - 4, 1);
	TL_ADD(batch, TL_NR_STORE, (uintptr_t)&constant, 1);
	TL_ADD(batch, TL_NR_STORE, NULL, 1);
	TL_ADD(batch, TL_NR_INCREASE, last, 1);
	CHECK_EQ(tl_batch_flush(batch), 9);
	CHECK_EQ(tl_batch_result(batch, 0), 7);
	CHECK_EQ(tl_batch_result(batch, 1), 9);
	CHECK_EQ(word, 9);
	CHECK_EQ(tl_batch_result(batch, 2), -EBADF);
	for (unsigned int slot = 3; slot < 8; slot++)
		CHECK_EQ(tl_batch_result(batch, slot), -EFAULT);
	CHECK_EQ(constant, 40);
	CHECK_EQ(tl_batch_result(batch, 8), 6);
	CHECK_EQ(*last, 6);
	CHECK_EQ(open_files(), files);
	tl_batch_destroy(batch);
}

static void workers_take_words(void)
{
	struct tl_psc *psc;
	uint64_t word = 0;
	struct tl_request chain[] = {
		TL_REQUEST(TL_NR_STORE, &word, 41), TL_REQUEST(TL_NR_INCREASE, &word, 1),
	};
	int64_t result = 0;
	int slot;

	refuse(SYS_process_vm_readv);
	refuse(SYS_process_vm_writev);
	psc = psc_new(8, 0, 2);
	slot = tl_psc_add_chain(psc, chain, 2);
	CHECK_EQ(tl_psc_wait(psc, 0), 0);
	CHECK_EQ(tl_psc_result(psc, (unsigned int)slot, &result), 1);
	CHECK_EQ(result, 42);
	CHECK_EQ(word, 42);
	tl_psc_destroy(psc);
}

/* ---- Objects and forks --------------------------------------------------------------------- */

static struct tl_batch *batches[3];
static struct tl_psc *psc;

static void child_of_fork(void)
{
	for (unsigned int i = 0; i < 3; i += 2) {
		CHECK_EQ(TL_ADD(batches[i], SYS_getpid), -EAGAIN);
		CHECK_EQ(tl_batch_flush(batches[i]), -EPERM);
		tl_batch_destroy(batches[i]);
	}
	CHECK_EQ(tl_psc_notify(psc), -EPERM);
	tl_psc_destroy(psc);
	batches[0] = batch_new(8);
	CHECK_EQ(TL_ADD(batches[0], SYS_getpid), 0);
	CHECK_EQ(tl_batch_flush(batches[0]), 1);
	CHECK_EQ(tl_batch_result(batches[0], 0), getpid());
	tl_batch_destroy(batches[0]);
}

static void children_are_noticed(void)
{
	refuse_advice(MADV_WIPEONFORK);
	for (unsigned int i = 0; i < 3; i++)
		batches[i] = batch_new(8);
	psc = psc_new(8, 0, 1);
	tl_batch_destroy(batches[1]);
	CHECK_EQ(TL_ADD(batches[0], SYS_getpid), 0);
	CHECK_EXITED(child_run(child_of_fork), 0);
	CHECK_EQ(tl_batch_flush(batches[0]), 1);
	CHECK_EQ(tl_batch_result(batches[0], 0), getpid());
	CHECK_EQ(TL_PSC_ADD(psc, SYS_getpid), 0);
	CHECK_EQ(tl_psc_wait(psc, 0), 0);
	tl_batch_destroy(batches[0]);
	tl_batch_destroy(batches[2]);
	tl_psc_destroy(psc);
}

/* ---- Calls that nothing replaces ----------------------------------------------------------- */

static void loops_without_epoll(void)
{
	struct tl_sched *sched = sched_new(32, 0, 0);
	int64_t result = 0;

	refuse(SYS_epoll_create1);
	CHECK_EQ(tl_sched_fd(sched), -refusal);
	CHECK_EQ(TL_CALL(sched, NULL, &result, SYS_getpid), 0);
	CHECK_EQ(tl_sched_run(sched), 0);
	CHECK_EQ(result, getpid());
	tl_sched_destroy(sched);
}

static void loops_without_timers(void)
{
	struct tl_sched *sched = sched_new(32, 0, 0);

	refuse(SYS_timerfd_create);
	CHECK_EQ(tl_sched_fd(sched), -refusal);
	tl_sched_destroy(sched);
}

static void loops_without_event_counters(void)
{
	struct tl_psc_completion completion;

	refuse(SYS_eventfd2);
	CHECK_EQ(tl_psc_create(&psc, 8, 0, LIB_FLAGS | TL_COMPLETIONS), 0);
	CHECK_EQ(tl_psc_start(psc, 1), 0);
	CHECK(tl_psc_fd(psc) > 2);
	CHECK_EQ(TL_PSC_ADD(psc, SYS_getpid), 0);
	CHECK_EQ(tl_psc_wait(psc, 0), 0);
	CHECK_EQ(tl_psc_next(psc, &completion), 1);
	CHECK_EQ(completion.result, getpid());
	tl_psc_destroy(psc);
}

static void threads_without_clone3(void)
{
	refuse(SYS_clone3);
	CHECK_EQ(tl_psc_create(&psc, 8, 0, LIB_FLAGS), 0);
	/*
	 * The C library has a second way where the call is unknown; where it is forbidden, none. On
	 * arm64 Debian 12's takes the second way always.
	 */
#ifdef __x86_64__
	CHECK_EQ(tl_psc_start(psc, 1), refusal == ENOSYS ? 0 : -refusal);
#else
	CHECK(tl_psc_start(psc, 1) == 0 || refusal != ENOSYS);
#endif
	tl_psc_destroy(psc);
}

int main(void)
{
	static void (*const tests[])(void) = {
		words_are_read_and_written, workers_take_words, children_are_noticed,
		loops_without_epoll, loops_without_timers, loops_without_event_counters,
		threads_without_clone3,
	};
	static const int refusals[] = { ENOSYS, EPERM };

	for (unsigned int how = 0; how < 2; how++) {
		refusal = refusals[how];
		for (unsigned int i = 0; i < sizeof(tests) / sizeof(*tests); i++)
			CHECK_EXITED(child_run(tests[i]), 0);
	}
	return 0;
}
