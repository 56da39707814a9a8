// SPDX-License-Identifier: GPL-2.0-only
/*
 * Every allocation on the way to a working ring fails in turn: the caller gets -ENOMEM (or
 * -EFAULT where copying from it is made to fail), and what succeeds in the end is whole.
 */
#include <sys/mount.h>

#include "ring.h"

#define STEPS_MAX 200
#define FAILSLAB "/sys/kernel/debug/failslab/"

static int fail_nth_fd;

/* The n-th allocation from now on fails; 0: none. */
static void fail_nth(int n)
{
	char text[16];
	int length = snprintf(text, sizeof(text), "%d", n);

	CHECK_EQ(pwrite(fail_nth_fd, text, (size_t)length, 0), length);
}

/* True if the failure that was asked for has happened. */
static bool has_failed(void)
{
	char text[16] = "";

	/* Reading the counter may be what fails: then it was not one of the steps before. */
	return pread(fail_nth_fd, text, sizeof(text) - 1, 0) > 0 && atoi(text) == 0;
}

static void check_error(const char *what, long result)
{
	if (result < 0 && result != -ENOMEM && result != -EFAULT && result != -ENFILE)
		FAIL("%s under memory pressure: %ld", what, result);
}

/* Returns false once all steps came through without a failure. */
static bool make_ring(int n, unsigned int flags)
{
	long fd, error = 0;
	void *map = NULL;
	bool failed;

	fail_nth(n);
	fd = sys(SYS_openat, AT_FDCWD, TL_DEVICE, O_RDWR | O_CLOEXEC);
	if (fd >= 0)
		error = device_setup((int)fd, 512, flags, 0);
	if (fd >= 0 && !error)
		map = device_map((int)fd, 512);
	failed = has_failed();
	fail_nth(0);

	check_error("open", fd);
	check_error("setup", error);
	check_error("mmap", is_error(map) ? (long)map : 0);
	if (map && !is_error(map)) {
		struct ring ring = { .fd = (int)fd, .entries = 512, .requests = map };

		if (!flags)
			CHECK_EQ(batch_call(&ring, SYS_getpid), getpid());
		CHECK_EQ(sys(SYS_munmap, map, TL_RING_BYTES(512)), 0);
	} else if (fd >= 0 && !error) {
		CHECK_EQ(device_setup((int)fd, 512, flags, 0), -EEXIST);
	} else if (fd >= 0) {
		CHECK_EQ(device_setup((int)fd, 512, flags, 0), 0);	/* it can be tried again */
	}
	if (fd >= 0)
		CHECK_EQ(sys(SYS_close, fd), 0);
	return failed;
}

int main(void)
{
	int steps[2] = { 0 };

	fail_nth_fd = open("/proc/self/fail-nth", O_RDWR);
	if (fail_nth_fd < 0)
		SKIP("this kernel injects no faults");
	if (access(FAILSLAB, F_OK) < 0)
		mount("debugfs", "/sys/kernel/debug", "debugfs", 0, NULL);
	/* By default only allocations that may not sleep fail. */
	if (write_file(FAILSLAB "ignore-gfp-wait", "N") != 1)
		SKIP("this kernel fails no slab allocations");
	for (unsigned int flags = 0; flags <= TL_SETUP_WORKERS; flags++)
		while (make_ring(steps[flags] + 1, flags))
			CHECK(++steps[flags] < STEPS_MAX);
	/* A ring of 9 pages needs more than a handful of allocations. */
	fprintf(stderr, "steps: %d for batches, %d for workers\n", steps[0], steps[1]);
	CHECK(steps[0] >= 5);
	CHECK(steps[1] > steps[0]);
	return 0;
}
