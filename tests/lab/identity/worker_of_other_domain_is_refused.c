/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * TOMOYO keeps a thread's domain with the thread and not in its credentials. A thread in another
 * domain than the worker's has no request made. A worker whose domain a request has changed makes
 * no other.
 */
#include <sys/mount.h>

#include "ring.h"

#define SECURITY "/sys/kernel/security"
#define DOMAIN SECURITY "/tomoyo/self_domain"
#define POLICY								\
	"<kernel>\ntask manual_domain_transition <kernel> //one\n"		\
	"<kernel> //one\ntask manual_domain_transition <kernel> //two\n"

static bool domain_set(const char *domain)
{
	return write_file(DOMAIN, domain) > 0;
}

static void need_tomoyo(void)
{
	char text[256];

	mount("securityfs", SECURITY, "securityfs", 0, NULL);
	if (read_file(SECURITY "/lsm", text, sizeof(text)) <= 0 || !strstr(text, "tomoyo"))
		SKIP("TOMOYO is off");
	if (write_file(SECURITY "/tomoyo/domain_policy", POLICY) < 0 ||
	    !domain_set("<kernel> //one"))
		SKIP("TOMOYO lets no thread change its domain");
}

int main(void)
{
	static const char two[] = "<kernel> //two";
	struct worker worker = { 0 };
	struct ring ring;
	int fd;

	need_tomoyo();
	ring = worker_ring_open(4);
	worker_start(&worker, &ring);
	wait_asleep(worker.tid);
	/* By request: the worker is in the other domain from then on, the requester is not. */
	fd = MUST((int)sys(SYS_openat, AT_FDCWD, DOMAIN, O_WRONLY));
	ring_queue(&ring, 0, SYS_write, fd, two, sizeof(two) - 1);
	ring_queue(&ring, 1, SYS_getpid);
	CHECK_EQ(ring_notify(&ring, 2), 2);
	worker_join(&worker);
	CHECK_EQ(worker.result, -EPERM);
	CHECK_DONE(&ring, 0, sizeof(two) - 1);
	CHECK_EQ(ring_state(&ring, 1), TL_SUBMITTED);
	worker_start(&worker, &ring);
	wait_done(&ring, 1);
	CHECK(domain_set(two));
	ring_queue(&ring, 2, SYS_getpid);
	CHECK_EQ(ring_notify(&ring, 1), -EPERM);
	workers_end(&ring, &worker, 1);
	return 0;
}
