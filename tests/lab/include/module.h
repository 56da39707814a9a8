/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Unloads the module and loads it again, for tests of what keeps it loaded.
 */
#ifndef TL_TEST_MODULE_H
#define TL_TEST_MODULE_H

#include <linux/trapless.h>

#include "check.h"

#define MODULE_FILE "/trapless.ko"
#define RELEASE_MS 30000	/* after its process a file is gone, on the slowest kernel */

static inline void module_need(void)
{
	if (access(MODULE_FILE, R_OK) < 0)
		SKIP("%s is not in this guest: the module could not be loaded again", MODULE_FILE);
}

/* 0 or -errno. */
static inline long module_unload(void)
{
	return sys(SYS_delete_module, "trapless", O_NONBLOCK);
}

static inline int module_references(void)
{
	char text[32];

	CHECK(read_file("/sys/module/trapless/refcnt", text, sizeof(text)) > 0);
	return atoi(text);
}

/* Waits: files are released a moment after their process. */
static inline void module_references_fall_to(int count)
{
	WAIT_UNTIL_MS(RELEASE_MS, module_references() == count, "%d references, expected %d",
		      module_references(), count);
}

/* 0 or -errno. */
static inline long module_load(const char *parameters)
{
	int fd = MUST(open(MODULE_FILE, O_RDONLY));
	long result = sys(SYS_finit_module, fd, parameters, 0);

	close(fd);
	/* devtmpfs makes the node some time later. */
	if (!result)
		WAIT_UNTIL(access(TL_DEVICE, F_OK) == 0, "no %s after %d ms", TL_DEVICE, WAIT_MS);
	return result;
}

/* Loads it with probes. A kernel that takes none has it as before, and the test is skipped. */
static inline void module_need_probes(void)
{
	long error;

	module_need();
	CHECK_EQ(module_unload(), 0);
	error = module_load("probes=1");
	if (!error)
		return;
	CHECK_EQ(module_load("supervisor=1"), 0);
	SKIP("this kernel takes no probes: %s", strerror((int)-error));
}

/* Unloads and loads. The last reference may be dropped a moment after its process has ended. */
static inline void module_reload(void)
{
	uint64_t deadline = now_ms() + WAIT_MS;
	long result;

	while ((result = module_unload()) == -EAGAIN && now_ms() < deadline)
		sched_yield();
	CHECK_EQ(result, 0);
	CHECK(access("/sys/module/trapless", F_OK) < 0);
	CHECK(access(TL_DEVICE, F_OK) < 0);
	CHECK_EQ(module_load("supervisor=1"), 0);
}

#endif /* TL_TEST_MODULE_H */
