// SPDX-License-Identifier: GPL-2.0-only
/*
 * While anybody traces system calls by the kernel's tracepoint (perf trace, ftrace), batches are
 * -EBUSY, so that the trace holds every call; without the tracepoint they work again.
 */
#include <sys/mount.h>

#include "ring.h"

#define TRACEFS "/sys/kernel/tracing"
#define ENABLE TRACEFS "/events/raw_syscalls/sys_enter/enable"

int main(void)
{
	struct ring ring = ring_open(4);
	long error;

	ring_put(&ring, 0, SYS_getpid);
	if (access(ENABLE, W_OK) < 0)
		mount("tracefs", TRACEFS, "tracefs", 0, NULL);
	error = write_file(ENABLE, "1");
	if (error < 0)
		SKIP("cannot enable the tracepoint: %s", strerror((int)-error));
	CHECK_EQ(ring_batch(&ring, 0, 1), -EBUSY);
	CHECK_EQ(ring_state(&ring, 0), TL_SUBMITTED);
	CHECK_EQ(write_file(ENABLE, "0"), 1);
	CHECK_EQ(ring_batch(&ring, 0, 1), 1);
	CHECK_DONE(&ring, 0, getpid());
	CHECK_EQ(ring_stats(&ring).bypassed, 1);
	return 0;
}
