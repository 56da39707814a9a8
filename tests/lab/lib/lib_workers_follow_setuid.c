// SPDX-License-Identifier: GPL-2.0-only
/*
 * setuid(3) changes every thread of a process. Workers inside the module return, take the new
 * identity and go on. No request is lost, and none is made with the old rights afterwards.
 */
#include "check.h"

#include <trapless.h>

#define ENTRIES 16

static void round_of_calls(struct tl_psc *psc, int64_t want_uid, int64_t want_open)
{
	unsigned int uids[ENTRIES / 2], opens[ENTRIES / 2];
	int64_t result;

	for (int i = 0; i < ENTRIES / 2; i++) {
		uids[i] = (unsigned int)TL_PSC_ADD(psc, SYS_getuid);
		opens[i] = (unsigned int)TL_PSC_ADD(psc, SYS_access, "/tmp/roots_own", R_OK);
	}
	CHECK_EQ(tl_psc_wait(psc, 0), 0);
	for (int i = 0; i < ENTRIES / 2; i++) {
		CHECK_EQ(tl_psc_result(psc, uids[i], &result), 1);
		CHECK_EQ(result, want_uid);
		CHECK_EQ(tl_psc_result(psc, opens[i], &result), 1);
		CHECK_EQ(result, want_open);
	}
}

static void program(void)
{
	struct tl_psc *psc;

	CHECK_EQ(tl_psc_create(&psc, ENTRIES, 100, TL_MODULE), 0);
	CHECK_EQ(tl_psc_start(psc, 4), 0);
	for (int round = 0; round < 50; round++)
		round_of_calls(psc, 0, 0);
	MUST(setgid(1000));
	for (int round = 0; round < 50; round++)
		round_of_calls(psc, 0, 0);
	MUST(setuid(1000));
	for (int round = 0; round < 50; round++)
		round_of_calls(psc, 1000, -EACCES);
	CHECK_EQ(tl_psc_backend(psc), TL_BACKEND_MODULE);
	tl_psc_destroy(psc);
}

int main(void)
{
	int fd = MUST(open("/tmp/roots_own", O_CREAT | O_WRONLY, 0600));

	close(fd);
	CHECK_EXITED(child_run(program), 0);
	return 0;
}
