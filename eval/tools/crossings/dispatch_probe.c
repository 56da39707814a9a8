// SPDX-License-Identifier: GPL-2.0-only
/*
 * See dispatch_probe.h.
 */
#include <errno.h>
#include <inttypes.h>
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "measure.h"
#include "dispatch_probe.h"

#define DISPATCHER "x64_sys_call"

/* Where the running kernel has the dispatcher. */
static uint64_t dispatcher_address(void)
{
	FILE *symbols = fopen("/proc/kallsyms", "re");
	uint64_t address = 0, found = 0;
	char line[512], name[256];

	if (!symbols)
		measure_fail("cannot open /proc/kallsyms: %s", strerror(errno));
	while (!found && fgets(line, sizeof(line), symbols))
		if (sscanf(line, "%" SCNx64 " %*c %255s", &address, name) == 2)
			found = strcmp(name, DISPATCHER) ? 0 : address;
	fclose(symbols);
	if (!found)
		measure_fail("no address of %s in /proc/kallsyms: not in this kernel, or "
			     "hidden from you; crossings cannot be counted", DISPATCHER);
	return found;
}

int probe_attach(pid_t process)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_BREAKPOINT,
		.size = sizeof(attr),
		.bp_type = HW_BREAKPOINT_X,
		.bp_addr = dispatcher_address(),
		.bp_len = sizeof(long),
		.inherit = 1,
		.exclude_user = 1,
	};
	long probe = syscall(SYS_perf_event_open, &attr, process, -1, -1, PERF_FLAG_FD_CLOEXEC);

	if (probe < 0)
		measure_fail("cannot set a breakpoint on %s: %s", DISPATCHER, strerror(errno));
	return (int)probe;
}

uint64_t probe_read(int probe)
{
	uint64_t count;

	if (read(probe, &count, sizeof(count)) != sizeof(count))
		measure_fail("cannot read the count of crossings: %s", strerror(errno));
	close(probe);
	return count;
}
