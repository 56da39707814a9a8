// SPDX-License-Identifier: GPL-2.0-only
/* A request that makes its process dump core: the dump is written, the ring in it or not. */
#include <sys/resource.h>
#include <sys/stat.h>

#include "ring.h"

static void body(void)
{
	struct rlimit no_limit = { RLIM_INFINITY, RLIM_INFINITY };
	struct ring ring = ring_open(64), workers = worker_ring_open(64);
	struct worker worker = { 0 };
	long done;

	MUST(setrlimit(RLIMIT_CORE, &no_limit));
	worker_start(&worker, &workers);
	ring_put(&ring, 0, SYS_getpid);
	ring_put(&ring, 1, SYS_kill, getpid(), SIGABRT);
	ring_put(&ring, 2, SYS_getpid);
	done = ring_batch(&ring, 0, 3);
	FAIL("survived: the batch returned %ld", done);
}

int main(void)
{
	struct stat status;
	int ended;

	if (write_file("/proc/sys/kernel/core_pattern", "tl-core") < 0)
		SKIP("cannot say where core dumps go");
	ended = child_run(body);
	CHECK_KILLED(ended, SIGABRT);
	if (!WCOREDUMP(ended))
		SKIP("this kernel writes no core dumps");
	MUST(stat("tl-core", &status));
	CHECK(status.st_size > 4096);
	unlink("tl-core");
	return 0;
}
