// SPDX-License-Identifier: GPL-2.0-only
/*
 * A process whose calls the kernel's audit records can be switched, but every call of it goes the
 * kernel's own way, record and all. Audit cannot be taken back: a rule spares later processes.
 */
#include "audit.h"
#include "supervisor.h"

#define CALLS 1000

static void audited(void)
{
	struct tl_process before, after;

	CHECK_EQ(raw_switch_supervisor(0), 0);
	before = process_counts(getpid());
	for (int i = 0; i < CALLS; i++) {
		sys(SYS_getppid);
		CHECK_EQ(cpl(), 3);
	}
	after = process_counts(getpid());
	CHECK(after.calls_kernel - before.calls_kernel >= CALLS);
	CHECK_EQ(calls_inside(&after), calls_inside(&before));
}

static void spared(void)
{
	enter_supervisor(0);
}

int main(void)
{
	struct audit_status on = { .mask = AUDIT_STATUS_ENABLED, .enabled = 1 };
	struct audit_status off = { .mask = AUDIT_STATUS_ENABLED, .enabled = 0 };
	struct audit_rule_data never = { .flags = AUDIT_FILTER_TASK, .action = AUDIT_NEVER };
	int error, status;

	supervisor_need();
	audit_fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_AUDIT);
	if (audit_fd < 0)
		SKIP("no audit: %s", strerror(errno));
	error = audit_send(AUDIT_SET, &on, sizeof(on));
	if (error)
		SKIP("audit cannot be switched on: %s", strerror(-error));
	status = child_run(audited);
	error = audit_send(AUDIT_ADD_RULE, &never, sizeof(never));
	audit_send(AUDIT_SET, &off, sizeof(off));
	CHECK_EXITED(status, 0);
	if (error)
		SKIP("audit was switched on and off; it takes no rule: %s", strerror(-error));
	CHECK_EXITED(child_run(spared), 0);
	return 0;
}
