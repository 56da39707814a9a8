// SPDX-License-Identifier: GPL-2.0-only
/*
 * The module cannot be unloaded while a descriptor, a mapping, a batch or a worker holds it; once
 * nothing does, it goes without a trace and comes back, again and again. A load that fails shows
 * nobody a device: the kernel would free the module under whoever has opened it.
 */
#include <linux/netlink.h>
#include <sys/socket.h>

#include "module.h"
#include "ring.h"

#define ROUNDS 5

static void hold_by_everything(void)
{
	struct ring batches = ring_open(8), workers = worker_ring_open(8);
	struct worker worker = { 0 };

	CHECK_EQ(module_unload(), -EAGAIN);
	ring_put(&batches, 0, SYS_delete_module, "trapless", O_NONBLOCK);
	CHECK_EQ(ring_batch(&batches, 0, 1), 1);	/* from inside a batch */
	CHECK_EQ(ring_state(&batches, 0), TL_DONE);
	CHECK(ring_result(&batches, 0) < 0);
	ring_close(&batches);
	worker_start(&worker, &workers);
	wait_asleep(worker.tid);
	CHECK_EQ(module_unload(), -EAGAIN);
	CHECK_EQ(sys(SYS_close, workers.fd), 0);	/* the worker's reference remains */
	CHECK_EQ(module_unload(), -EAGAIN);
}

static void hold_by_mapping(void)
{
	struct ring ring = ring_open(8);

	CHECK_EQ(sys(SYS_close, ring.fd), 0);
	CHECK_EQ(module_unload(), -EAGAIN);
}

static bool is_announced(int news)
{
	const char add[] = "add@/devices/virtual/misc/trapless";
	char text[4096];
	bool found = false;

	while (recv(news, text, sizeof(text), MSG_DONTWAIT) > 0)
		found |= !memcmp(text, add, sizeof(add));
	return found;
}

static void failing_load_shows_no_device(void)
{
	struct sockaddr_nl kernel = { .nl_family = AF_NETLINK, .nl_groups = 1 };
	int news = MUST(socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_KOBJECT_UEVENT));

	MUST(bind(news, (struct sockaddr *)&kernel, sizeof(kernel)));
	WAIT_UNTIL(module_unload() == 0, "the module does not go in %d ms", WAIT_MS);
	CHECK(module_load("probes=8 events=no_such_event") < 0);
	CHECK(!is_announced(news));
	CHECK_EQ(module_load("supervisor=1"), 0);
	CHECK(is_announced(news));
	close(news);
}

int main(void)
{
	module_need();
	failing_load_shows_no_device();
	for (int round = 0; round < ROUNDS; round++) {
		CHECK_EXITED(child_run(hold_by_everything), 0);
		CHECK_EXITED(child_run(hold_by_mapping), 0);
		module_reload();
	}
	return 0;
}
