// SPDX-License-Identifier: GPL-2.0-only
/*
 * The module cannot be unloaded while a descriptor, a mapping, a batch or a worker holds it; once
 * nothing does, it goes without a trace and comes back, again and again.
 */
#include "ring.h"

#define MODULE_FILE "/trapless.ko"
#define ROUNDS 5

static long unload(void)
{
	return sys(SYS_delete_module, "trapless", O_NONBLOCK);
}

/* The last reference of a process that has ended may be dropped a moment later. */
static void unload_soon(void)
{
	uint64_t deadline = now_ms() + WAIT_MS;
	long result;

	while ((result = unload()) == -EAGAIN && now_ms() < deadline)
		sleep_ms(5);
	CHECK_EQ(result, 0);
}

static void load(void)
{
	uint64_t deadline = now_ms() + WAIT_MS;
	int fd = MUST(open(MODULE_FILE, O_RDONLY));

	CHECK_EQ(sys(SYS_finit_module, fd, "supervisor=1", 0), 0);
	close(fd);
	while (access(TL_DEVICE, F_OK) < 0) {	/* devtmpfs makes the node on its own time */
		CHECK(now_ms() < deadline);
		sleep_ms(1);
	}
}

static void hold_by_everything(void)
{
	struct ring batches = ring_open(8), workers = worker_ring_open(8);
	struct worker worker = { 0 };

	CHECK_EQ(unload(), -EAGAIN);
	ring_put(&batches, 0, SYS_delete_module, "trapless", O_NONBLOCK);
	CHECK_EQ(ring_batch(&batches, 0, 1), 1);	/* from inside a batch */
	CHECK_EQ(ring_state(&batches, 0), TL_DONE);
	CHECK(ring_result(&batches, 0) < 0);
	ring_close(&batches);
	worker_start(&worker, &workers);
	wait_asleep(worker.tid);
	CHECK_EQ(unload(), -EAGAIN);
	CHECK_EQ(sys(SYS_close, workers.fd), 0);	/* the worker's reference remains */
	CHECK_EQ(unload(), -EAGAIN);
}

static void hold_by_mapping(void)
{
	struct ring ring = ring_open(8);

	CHECK_EQ(sys(SYS_close, ring.fd), 0);
	CHECK_EQ(unload(), -EAGAIN);
}

int main(void)
{
	if (access(MODULE_FILE, R_OK) < 0)
		SKIP("%s is not in this guest: the module could not be loaded again", MODULE_FILE);
	for (int round = 0; round < ROUNDS; round++) {
		CHECK_EXITED(child_run(hold_by_everything), 0);
		CHECK_EXITED(child_run(hold_by_mapping), 0);
		unload_soon();
		CHECK(access("/sys/module/trapless", F_OK) < 0);
		CHECK(access(TL_DEVICE, F_OK) < 0);
		load();
	}
	return 0;
}
