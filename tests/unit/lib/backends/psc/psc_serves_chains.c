// SPDX-License-Identifier: GPL-2.0-only
/*
 * Chains and programs of parallel calls: one worker makes them in order, an error ends a chain and
 * not a program, arguments are results and words of memory, and there is one completion.
 */
#include "lib_check.h"

#include <sys/mman.h>

#define CHAINS 8
#define ROUNDS 50

static int64_t run(struct tl_psc *psc, int slot)
{
	int64_t result = 0x5eed;

	CHECK(slot >= 0);
	CHECK_EQ(tl_psc_wait(psc, 0), 0);
	CHECK_EQ(tl_psc_result(psc, (unsigned int)slot, &result), 1);
	return result;
}

static int64_t run_chain(struct tl_psc *psc, struct tl_request *chain, unsigned int n)
{
	return run(psc, tl_psc_add_chain(psc, chain, n));
}

static void write_and_sync(struct tl_psc *psc, int fd)
{
	struct tl_request chain[] = {
		TL_REQUEST(SYS_write, fd, "chain", 5),
		TL_REQUEST(SYS_fdatasync, fd),
	};

	CHECK_EQ(run_chain(psc, chain, 2), 0);
	CHECK_EQ(chain[0].result, 5);
	CHECK_EQ(chain[1].result, 0);
	/* The first error is the result, and cancels the rest. */
	chain[0].args[0] = (uint64_t)-1;
	CHECK_EQ(run_chain(psc, chain, 2), -EBADF);
	CHECK_EQ(chain[0].result, -EBADF);
	CHECK_EQ(chain[1].result, -ECANCELED);
}

static void arguments_are_results(struct tl_psc *psc)
{
	char path[] = "/proc/self/cmdline", buffer[64] = "";
	int pipes[2] = { -1, -1 };
	struct tl_request whole[] = {
		TL_REQUEST(SYS_openat, AT_FDCWD, path, O_RDONLY),
		TL_REQUEST(SYS_read | TL_RESULT(0), 0, buffer, sizeof(buffer)),
		TL_REQUEST(SYS_close | TL_RESULT(0), 0),
	};
	struct tl_request words[] = {
		TL_REQUEST(SYS_pipe2, pipes, 0),
		TL_REQUEST(SYS_write | TL_WORD32(0), &pipes[1], "xyz", 3),
		TL_REQUEST(SYS_read | TL_WORD32(0) | TL_RESULT(2), &pipes[0], buffer, 1),
		TL_REQUEST(SYS_close | TL_WORD32(0), &pipes[0]),
		TL_REQUEST(SYS_close | TL_WORD32(0), &pipes[1]),
	};

	CHECK_EQ(run_chain(psc, whole, 3), 0);
	CHECK(whole[1].result > 0 && buffer[0]);
	path[0] = '\0';
	CHECK_EQ(run_chain(psc, whole, 3), -ENOENT);
	CHECK_EQ(whole[2].result, -ECANCELED);
	CHECK_EQ(run_chain(psc, words, 5), 0);
	CHECK_EQ(words[2].result, 3);
	CHECK(!memcmp(buffer, "xyz", 3));
}

/* Copies a file in pieces until nothing is left: a loop by one worker. */
static void program_loops(struct tl_psc *psc)
{
	int in = MUST(memfd_create("in", 0)), out = MUST(memfd_create("out", 0));
	char text[1000], copy[sizeof(text)], buffer[64];
	struct tl_request program[] = {
		TL_REQUEST(SYS_read, in, buffer, sizeof(buffer)),
		TL_REQUEST(SYS_write | TL_RESULT(2), out, buffer, 0),
		TL_REQUEST(SYS_close, -1),	/* an error that ends nothing */
		TL_REQUEST(SYS_getppid),
	};

	for (unsigned int i = 0; i < sizeof(text); i++)
		text[i] = (char)(i * 7);
	CHECK_EQ(pwrite(in, text, sizeof(text), 0), sizeof(text));
	tl_request_jump(&program[1], TL_IF_POSITIVE, 0);
	CHECK_EQ(run(psc, tl_psc_add_program(psc, program, 4, 1000)), getppid());
	CHECK_EQ(program[2].result, -EBADF);
	CHECK_EQ(pread(out, copy, sizeof(copy), 0), sizeof(copy));
	CHECK(!memcmp(text, copy, sizeof(text)));

	tl_request_jump(&program[3], TL_IF_ALWAYS, 3);
	CHECK_EQ(run(psc, tl_psc_add_program(psc, program, 4, 1000)), -ETIME);
	CHECK_EQ(run(psc, tl_psc_add_program(psc, program, 4, 2)), -ETIME);
	CHECK_EQ(program[2].result, -ECANCELED);
	close(in);
	close(out);
}

static void wrong_steps_are_errors(struct tl_psc *psc)
{
	struct tl_request chain[] = {
		TL_REQUEST(SYS_getppid),
		TL_REQUEST(SYS_close | TL_RESULT(0), 2),
	};

	CHECK_EQ(run_chain(psc, chain, 2), -EINVAL);
	chain[1] = TL_REQUEST(SYS_close | TL_RESULT(0), 1);	/* its own result */
	CHECK_EQ(run_chain(psc, chain, 2), -ECANCELED);
	chain[1] = TL_REQUEST(SYS_close | TL_WORD32(0), 8);
	CHECK_EQ(run_chain(psc, chain, 2), -EFAULT);
	chain[1] = TL_REQUEST(TL_NR_PROGRAM, chain, 2, 100);
	CHECK_EQ(run_chain(psc, chain, 2), -ENOSYS);
	chain[1] = TL_REQUEST(SYS_setuid, 0);
	CHECK_EQ(run_chain(psc, chain, 2), -EOPNOTSUPP);
	chain[0] = TL_REQUEST(1u << 31);
	CHECK_EQ(run_chain(psc, chain, 2), -ENOSYS);
	CHECK_EQ(chain[1].result, -ECANCELED);
	CHECK_EQ(tl_psc_add_chain(psc, chain, 0), -EINVAL);
	CHECK_EQ(tl_psc_add_chain(psc, chain, TL_ENTRIES_MAX + 1), -EINVAL);
	CHECK_EQ(run(psc, TL_PSC_ADD(psc, TL_NR_PROGRAM, chain, 0, 1)), -EINVAL);
	CHECK_EQ(run(psc, TL_PSC_ADD(psc, TL_NR_PROGRAM, chain, 2, 1, 2)), -EINVAL);
	CHECK_EQ(run(psc, TL_PSC_ADD(psc, TL_NR_PROGRAM, chain, 2, 1, 0, 3)), -EINVAL);
}

/* Each chain is made by one worker, and not mixed with another one's calls. */
static void chains_are_not_torn(struct tl_psc *psc)
{
	struct tl_request chains[CHAINS][3];
	int64_t result;
	int slots[CHAINS];

	for (unsigned int round = 0; round < ROUNDS; round++) {
		for (unsigned int i = 0; i < CHAINS; i++) {
			chains[i][0] = TL_REQUEST(SYS_gettid);
			chains[i][1] = TL_REQUEST(SYS_sched_yield);
			chains[i][2] = TL_REQUEST(SYS_gettid);
			slots[i] = tl_psc_add_chain(psc, chains[i], 3);
			CHECK(slots[i] >= 0);
		}
		CHECK_EQ(tl_psc_wait(psc, 0), 0);
		for (unsigned int i = 0; i < CHAINS; i++) {
			CHECK_EQ(tl_psc_result(psc, (unsigned int)slots[i], &result), 1);
			CHECK_EQ(chains[i][0].result, chains[i][2].result);
			CHECK_EQ(result, chains[i][2].result);
			CHECK(result > 0 && result != getpid());
		}
	}
}

int main(void)
{
	struct tl_psc *psc = psc_new(16, 0, 3);
	struct tl_stats stats = { .size = sizeof(stats) };
	struct tl_request two[] = { TL_REQUEST(SYS_getppid), TL_REQUEST(SYS_execve) };
	int fd = MUST(memfd_create("chain", 0));

	CHECK_EQ(run_chain(psc, two, 2), -EOPNOTSUPP);
	CHECK_EQ(tl_psc_get_stats(psc, &stats), 0);
	CHECK_EQ(stats.executed, 1);
	CHECK_EQ(stats.refused, 1);
	write_and_sync(psc, fd);
	arguments_are_results(psc);
	program_loops(psc);
	wrong_steps_are_errors(psc);
	chains_are_not_torn(psc);
	tl_psc_destroy(psc);
	close(fd);
	return 0;
}
