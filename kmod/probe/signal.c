// SPDX-License-Identifier: GPL-2.0-only
/*
 * Records on the way back to user mode that a signal is delivered there. This file owns the
 * tracepoint of that. Signals are rare, so the kernel's own tracepoint costs little enough.
 */
#include <linux/errno.h>
#include <linux/percpu.h>
#include <linux/tracepoint.h>

#include "compat/symbols.h"
#include "probe/signal.h"
#include "probe/thunk.h"

struct k_sigaction;
struct kernel_siginfo;

static struct tracepoint *delivery;

static void on_delivery(void *unused, int number, struct kernel_siginfo *info,
			struct k_sigaction *action)
{
	this_cpu_write(tlk_probe_cpu.record.entry, TLK_ENTRY_SIGNAL);
}

int tlk_probe_signals_start(void)
{
	delivery = tlk_tracepoint("signal_deliver");
	if (!delivery)
		return -EOPNOTSUPP;
	return tracepoint_probe_register(delivery, on_delivery, NULL);
}

void tlk_probe_signals_stop(void)
{
	tracepoint_probe_unregister(delivery, on_delivery, NULL);
	tracepoint_synchronize_unregister();
}
