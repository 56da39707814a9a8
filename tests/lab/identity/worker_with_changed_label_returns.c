// SPDX-License-Identifier: GPL-2.0-only
/*
 * A request that writes to /proc/thread-self/attr changes the label of the worker that makes it.
 * That worker makes no further request: it is no longer what its requester is.
 */
#include <sys/mount.h>
#include <sys/stat.h>

#include "ring.h"

/* A namespace of AppArmor's is a label that needs no policy. */
#define NAMESPACE "trapless-test"

static const char directory[] = "/sys/kernel/security/apparmor/policy/namespaces/" NAMESPACE;
static const char own_label[] = "/proc/thread-self/attr/current";

static void changed_by_request(void)
{
	static const char change[] = "changeprofile :" NAMESPACE "://unconfined";
	struct ring ring = worker_ring_open(4);
	struct worker worker = { 0 };

	worker_start(&worker, &ring);
	ring_queue(&ring, 0, SYS_openat, AT_FDCWD, own_label, O_WRONLY | O_CLOEXEC);
	CHECK_EQ(ring_wait(&ring, 1, 0), 0);
	CHECK(ring_result(&ring, 0) >= 0);
	ring_queue(&ring, 1, SYS_write, ring_result(&ring, 0), change, strlen(change));
	CHECK_EQ(ring_wait(&ring, 1, 0), 0);
	CHECK_DONE(&ring, 1, strlen(change));

	ring_queue(&ring, 2, SYS_getpid);
	CHECK_EQ(ring_notify(&ring, 1), 1);
	sleep_ms(10);
	CHECK_EQ(ring_state(&ring, 2), TL_SUBMITTED);
	worker_join(&worker);
	CHECK_EQ(worker.result, -EPERM);
}

int main(void)
{
	int status;

	if (mount("securityfs", "/sys/kernel/security", "securityfs", 0, NULL) && errno != EBUSY)
		SKIP("no securityfs: %s", strerror(errno));
	if (mkdir(directory, 0700))
		SKIP("no namespaces of AppArmor: %s", strerror(errno));
	status = child_run(changed_by_request);
	rmdir(directory);
	CHECK_EXITED(status, 0);
	return 0;
}
