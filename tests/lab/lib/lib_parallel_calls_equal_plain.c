// SPDX-License-Identifier: GPL-2.0-only
/*
 * The same requests, some of them refused or failing, get the same results from user-space workers
 * and from the module's; only the order in which they are made is free.
 */
#include "check.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <trapless.h>

#define ENTRIES 64
#define ROUNDS 100
#define KINDS 8

static char bytes[ENTRIES][16];
static struct stat stats[ENTRIES];

static int request(struct tl_psc *psc, int fd, int i)
{
	switch (i % KINDS) {
	case 0:
		return TL_PSC_ADD(psc, SYS_getpid);
	case 1:
		return TL_PSC_ADD(psc, SYS_pread64, fd, bytes[i], i % 16, i);
	case 2:
		return TL_PSC_ADD(psc, SYS_stat, i % 3 ? "/" : "/absent", &stats[i]);
	case 3:
		return TL_PSC_ADD(psc, SYS_pread64, fd, 8, 1, 0);
	case 4:
		return TL_PSC_ADD(psc, SYS_setuid, 0);
	case 5:
		return TL_PSC_ADD(psc, SYS_clone3, 0, 0);
	case 6:
		return TL_PSC_ADD(psc, 4000);
	default:
		return TL_PSC_ADD(psc, SYS_close, -1);
	}
}

static struct tl_stats run(unsigned int flags, int fd, int64_t results[ROUNDS][ENTRIES])
{
	struct tl_stats counts = { .size = sizeof(counts) };
	struct tl_psc *psc;

	CHECK_EQ(tl_psc_create(&psc, ENTRIES, 10, flags), 0);
	CHECK_EQ(tl_psc_start(psc, 3), 0);
	for (int round = 0; round < ROUNDS; round++) {
		int slots[ENTRIES];

		memset(bytes, 0, sizeof(bytes));
		for (int i = 0; i < ENTRIES; i++)
			CHECK((slots[i] = request(psc, fd, i)) >= 0);
		CHECK_EQ(tl_psc_wait(psc, 0), 0);
		for (int i = 0; i < ENTRIES; i++) {
			CHECK_EQ(tl_psc_result(psc, (unsigned int)slots[i], &results[round][i]), 1);
			if (i % KINDS == 1)
				CHECK_EQ(bytes[i][0], i % 16 ? i : 0);
		}
	}
	CHECK_EQ(tl_psc_get_stats(psc, &counts), 0);
	tl_psc_destroy(psc);
	return counts;
}

int main(void)
{
	static int64_t plain[ROUNDS][ENTRIES], module[ROUNDS][ENTRIES];
	int fd = MUST(memfd_create("contents", 0));
	struct tl_stats plain_counts, module_counts;

	for (int i = 0; i < 2 * ENTRIES; i++)
		MUST(write(fd, &(char){ (char)i }, 1));
	plain_counts = run(TL_PLAIN, fd, plain);
	module_counts = run(TL_MODULE, fd, module);
	CHECK_EQ(memcmp(plain, module, sizeof(plain)), 0);
	CHECK_EQ(plain_counts.refused, ROUNDS * ENTRIES * 3 / KINDS);
	CHECK_EQ(module_counts.refused, plain_counts.refused);
	CHECK_EQ(module_counts.executed, plain_counts.executed);
	return 0;
}
