// SPDX-License-Identifier: GPL-2.0-only
/*
 * The same random calls, good and bad ones, in batches of random size, give the same results and
 * leave the same bytes behind by plain calls and by the module; where their order is free, too, for
 * it is the same on both. TL_SEED repeats a run.
 */
#include "random.h"

#include <sys/stat.h>
#include <trapless.h>

#define ROUNDS 400u
#define BATCH_MAX 64u
#define FIRST_FD 40		/* descriptors of the scenario are FIRST_FD.. */
#define FDS 12u
#define NAMES 6u
#define AREA 64u		/* bytes of memory for each call */

struct scenario {
	struct random random;
	uint64_t digest;	/* of every result and every byte that the kernel wrote */
	uint64_t results_ok;
	char memory[BATCH_MAX][AREA];
	struct stat stats[BATCH_MAX];
	char names[NAMES][16];
};

static uint32_t next(struct scenario *run, uint32_t below)
{
	return random_below(&run->random, below);
}

static void digest(struct scenario *run, const void *bytes, size_t n)
{
	const unsigned char *byte = bytes;

	while (n--)
		run->digest = (run->digest ^ *byte++) * 1099511628211u;
}

static void add_file_call(struct scenario *run, struct tl_batch *batch, unsigned int i)
{
	unsigned int fd = FIRST_FD + next(run, FDS), size = next(run, AREA + 1);
	unsigned int offset = next(run, 5000);

	switch (next(run, 7)) {
	case 0:
		TL_ADD(batch, SYS_pwrite64, fd, run->memory[i], size, offset);
		break;
	case 1:
		TL_ADD(batch, SYS_pread64, fd, run->memory[i], size, offset);
		break;
	case 2:
		TL_ADD(batch, SYS_write, fd, run->memory[i], size);
		break;
	case 3:
		TL_ADD(batch, SYS_read, fd, run->memory[i], size);
		break;
	case 4:
		TL_ADD(batch, SYS_lseek, fd, offset, next(run, 4));
		break;
	case 5:
		TL_ADD(batch, SYS_ftruncate, fd, offset);
		break;
	default:
		TL_ADD(batch, SYS_read, fd, 8, size);	/* no memory there */
		break;
	}
}

static void add_name_call(struct scenario *run, struct tl_batch *batch, unsigned int i)
{
	const char *name = run->names[next(run, NAMES)], *other = run->names[next(run, NAMES)];

	switch (next(run, 7)) {
	case 0:
		TL_ADD(batch, SYS_open, name, O_RDWR | O_CREAT | (next(run, 2) ? O_EXCL : 0), 0600);
		break;
	case 1:
		TL_ADD(batch, SYS_stat, name, &run->stats[i]);
		break;
	case 2:
		TL_ADD(batch, SYS_unlink, name);
		break;
	case 3:
		TL_ADD(batch, SYS_rename, name, other);
		break;
	case 4:
		TL_ADD(batch, SYS_symlink, other, name);
		break;
	case 5:
		TL_ADD(batch, SYS_readlink, name, run->memory[i], AREA);
		break;
	default:
		TL_ADD(batch, SYS_mkdir, name, 0700);
		break;
	}
}

static void add_other_call(struct scenario *run, struct tl_batch *batch, unsigned int i)
{
	static const uint32_t odd[] = {
		SYS_fork, SYS_execve, SYS_rt_sigsuspend, SYS_seccomp, 5000, UINT32_MAX,
	};

	switch (next(run, 6)) {
	case 0:
		TL_ADD(batch, odd[next(run, 6)], run->memory[i], 0, 0);
		break;
	case 1:
		TL_ADD(batch, SYS_getppid);
		break;
	case 2:
		TL_ADD(batch, SYS_dup2, FIRST_FD + next(run, FDS), FIRST_FD + next(run, FDS));
		break;
	case 3:
		TL_ADD(batch, SYS_fcntl, FIRST_FD + next(run, FDS), F_DUPFD,
		       FIRST_FD + next(run, FDS));
		break;
	case 4:
		TL_ADD(batch, SYS_umask, next(run, 8) << 6);
		break;
	default:
		TL_ADD(batch, SYS_close, FIRST_FD + next(run, FDS));
		break;
	}
}

static void round_of_calls(struct scenario *run, struct tl_batch *batch)
{
	unsigned int n = 1 + next(run, BATCH_MAX);

	memset(run->stats, 0, sizeof(run->stats));
	for (unsigned int i = 0; i < n; i++) {
		memset(run->memory[i], 'a' + (int)next(run, 26), AREA);
		switch (next(run, 4)) {
		case 0:
			add_name_call(run, batch, i);
			break;
		case 1:
			add_other_call(run, batch, i);
			break;
		default:
			add_file_call(run, batch, i);
			break;
		}
	}
	CHECK_EQ(tl_batch_flush(batch), n);
	for (unsigned int i = 0; i < n; i++) {
		int64_t result = tl_batch_result(batch, i);

		run->results_ok += result >= 0;
		digest(run, &result, sizeof(result));
		digest(run, run->memory[i], AREA);
		digest(run, &run->stats[i].st_size, sizeof(run->stats[i].st_size));
		digest(run, &run->stats[i].st_mode, sizeof(run->stats[i].st_mode));
	}
}

static void scenario(struct scenario *run, uint64_t seed, unsigned int flags)
{
	char folder[] = "/tmp/randomXXXXXX";
	struct tl_stats stats = { .size = sizeof(stats) };
	struct tl_batch *batch;

	memset(run, 0, sizeof(*run));
	run->random = random_seeded(seed);
	CHECK(mkdtemp(folder));
	MUST(chdir(folder));
	umask(022);
	for (unsigned int i = 0; i < NAMES; i++)
		snprintf(run->names[i], sizeof(run->names[i]), "name%u", i);
	CHECK_EQ(tl_batch_create(&batch, BATCH_MAX, flags), 0);
	/* The lowest free descriptor is FIRST_FD, whatever the batch uses itself. */
	for (int fd = 3; fd < FIRST_FD; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			MUST(dup2(0, fd));
	for (unsigned int round = 0; round < ROUNDS; round++)
		round_of_calls(run, batch);
	CHECK_EQ(tl_batch_get_stats(batch, &stats), 0);
	CHECK(stats.executed > 10 * ROUNDS);
	if (flags & TL_MODULE)
		CHECK_EQ(stats.crossings, ROUNDS);
	tl_batch_destroy(batch);
	CHECK_EQ(sys(SYS_close_range, 3, UINT32_MAX, 0), 0);
	MUST(chdir("/"));
}

/* In the same memory: where a name lies is part of what sorts calls. */
static void compare(uint64_t seed, unsigned int flags)
{
	static struct scenario run;
	uint64_t ok, of_plain;

	scenario(&run, seed, flags | TL_PLAIN);
	ok = run.results_ok;
	of_plain = run.digest;
	CHECK(ok > ROUNDS);
	scenario(&run, seed, flags | TL_MODULE);
	CHECK_EQ(run.results_ok, ok);
	CHECK_EQ(run.digest, of_plain);
}

int main(void)
{
	uint64_t seed = random_choose_seed();

	compare(seed, 0);
	compare(seed, TL_UNORDERED);
	return 0;
}
