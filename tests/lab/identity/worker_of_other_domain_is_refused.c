/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * TOMOYO keeps a thread's domain with the thread and not in its credentials. A thread in another
 * domain than the worker's has no request made, and a worker whose domain a request has changed
 * makes no other.
 */
#include <sys/mount.h>

#include "ring.h"

#define SECURITY "/sys/kernel/security"
#define DOMAIN SECURITY "/tomoyo/self_domain"

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
	if (write_file(SECURITY "/tomoyo/domain_policy", "<kernel>\ntask manual_domain_transition "
		       "<kernel> //one\n") < 0 || !domain_set("<kernel> //one"))
		SKIP("TOMOYO lets no thread change its domain");
}

int main(void)
{
	struct worker worker = { 0 };
	struct ring ring;

	need_tomoyo();
	ring = worker_ring_open(4);
	worker_start(&worker, &ring);
	wait_asleep(worker.tid);
	CHECK(domain_set("<kernel> //two"));
	ring_queue(&ring, 0, SYS_getpid);
	CHECK_EQ(ring_notify(&ring, 1), -EPERM);
	workers_end(&ring, &worker, 1);
	return 0;
}
