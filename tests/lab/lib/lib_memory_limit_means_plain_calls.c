/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A user whose limit of locked memory has no room for a ring: the library makes plain calls, with
 * the same results, and says why; where the module is demanded, it says -ENOMEM.
 */
#include <string.h>
#include <sys/resource.h>
#include <trapless.h>

#include "check.h"

#define STRANGER 1235

static void without_room(void)
{
	struct rlimit limit = { 4096, 4096 };
	struct tl_batch *batch;
	int slot;

	MUST(setrlimit(RLIMIT_MEMLOCK, &limit));
	CHECK_EQ(sys(SYS_setresuid, STRANGER, STRANGER, STRANGER), 0);
	CHECK_EQ(tl_batch_create(&batch, 256, TL_MODULE), -ENOMEM);
	CHECK_EQ(tl_batch_create(&batch, 256, 0), 0);
	CHECK_EQ(tl_batch_backend(batch), TL_BACKEND_PLAIN);
	CHECK(strstr(tl_batch_reason(batch), "ulimit -l"));
	slot = TL_ADD(batch, SYS_getpid);
	CHECK_EQ(tl_batch_flush(batch), 1);
	CHECK_EQ(tl_batch_result(batch, slot), getpid());
	tl_batch_destroy(batch);
	CHECK_EQ(tl_batch_create(&batch, 32, 0), 0);
	CHECK_EQ(tl_batch_backend(batch), TL_BACKEND_MODULE);
	CHECK(!tl_batch_reason(batch));
	tl_batch_destroy(batch);
}

int main(void)
{
	CHECK_EXITED(child_run(without_room), 0);
	return 0;
}
