// SPDX-License-Identifier: GPL-2.0-only
/*
 * A thread whose calls the kernel's audit records gets -EBUSY for each batch, so that no call
 * escapes the record. Audit cannot be taken back: this test leaves a rule that spares later
 * processes.
 */
#include "audit.h"
#include "ring.h"

static void audited(void)
{
	struct ring ring = ring_open(4);

	ring_put(&ring, 0, SYS_getpid);
	CHECK_EQ(ring_batch(&ring, 0, 1), -EBUSY);
	CHECK_EQ(ring_state(&ring, 0), TL_SUBMITTED);
	CHECK_EQ(ring_stats(&ring).bypassed, 1);
}

/* An audited requester, and a worker from before audit, whose calls nobody records. */
static void *audited_requester(void *ring)
{
	return (void *)ring_notify(ring, 1);
}

static void spared(void)
{
	struct ring ring = ring_open(4);

	CHECK_EQ(batch_call(&ring, SYS_getpid), getpid());
}

int main(void)
{
	struct audit_status on = { .mask = AUDIT_STATUS_ENABLED, .enabled = 1 };
	struct audit_status off = { .mask = AUDIT_STATUS_ENABLED, .enabled = 0 };
	struct audit_rule_data never = { .flags = AUDIT_FILTER_TASK, .action = AUDIT_NEVER };
	struct ring ring = worker_ring_open(4);
	struct worker worker = { 0 };
	pthread_t requester;
	void *notified;
	int error, status;

	audit_fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_AUDIT);
	if (audit_fd < 0)
		SKIP("no audit: %s", strerror(errno));
	worker_start(&worker, &ring);
	wait_asleep(worker.tid);
	ring_queue(&ring, 0, SYS_getpid);
	audit_send(AUDIT_DEL_RULE, &never, sizeof(never));	/* of an earlier test */
	error = audit_send(AUDIT_SET, &on, sizeof(on));
	if (error)
		SKIP("cannot enable audit: %s", strerror(-error));
	status = child_run(audited);
	CHECK_EQ(pthread_create(&requester, NULL, audited_requester, &ring), 0);
	CHECK_EQ(pthread_join(requester, &notified), 0);
	for (int i = 0; i < AUDIT_BITMASK_SIZE; i++)
		never.mask[i] = UINT32_MAX;
	CHECK_EQ(audit_send(AUDIT_ADD_RULE, &never, sizeof(never)), 0);
	CHECK_EQ(audit_send(AUDIT_SET, &off, sizeof(off)), 0);
	CHECK_EXITED(status, 0);
	CHECK_EQ((long)notified, -EBUSY);
	CHECK_EQ(ring_state(&ring, 0), TL_SUBMITTED);
	CHECK_EQ(ring_stats(&ring).bypassed, 1);
	CHECK_EXITED(child_run(spared), 0);
	workers_end(&ring, &worker, 1);
	return 0;
}
