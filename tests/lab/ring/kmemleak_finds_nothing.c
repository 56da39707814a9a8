// SPDX-License-Identifier: GPL-2.0-only
/* On a kernel that tracks its allocations: after all other tests nothing of the module is lost. */
#include <sys/mount.h>

#include "ring.h"

#define KMEMLEAK "/sys/kernel/debug/kmemleak"

static void use_rings(void)
{
	for (int i = 0; i < 50; i++) {
		struct ring batches = ring_open(64), workers = worker_ring_open(64);
		struct worker worker = { 0 };

		CHECK_EQ(batch_call(&batches, SYS_getpid), getpid());
		worker_start(&worker, &workers);
		workers_end(&workers, &worker, 1);
		ring_close(&batches);
		ring_close(&workers);
	}
}

int main(void)
{
	static char report[1 << 16];
	long length;

	if (access(KMEMLEAK, R_OK) < 0)
		mount("debugfs", "/sys/kernel/debug", "debugfs", 0, NULL);
	if (access(KMEMLEAK, R_OK) < 0)
		SKIP("this kernel has no kmemleak");
	CHECK_EXITED(child_run(use_rings), 0);
	/* An object must be older than five seconds to be reported. */
	sleep_ms(5500);
	for (int scan = 0; scan < 2; scan++) {
		length = write_file(KMEMLEAK, "scan");
		if (length == -EBUSY || length == -EPERM)
			SKIP("kmemleak is switched off");
		CHECK_EQ(length, 4);
	}
	length = read_file(KMEMLEAK, report, sizeof(report));
	CHECK(length >= 0);
	/* Others' leaks are not this test's: the module's carry its name in the backtrace. */
	if (strstr(report, "[trapless]") || strstr(report, "tlk_"))
		FAIL("kmemleak reports:\n%s", report);
	return 0;
}
