// SPDX-License-Identifier: GPL-2.0-only
/*
 * Records on the way back to user mode that a signal is delivered there. This file owns the
 * tracepoint of that. Signals are rare, so the kernel's own tracepoint costs little enough.
 */
#include <linux/errno.h>
#include <linux/percpu.h>
#include <linux/tracepoint.h>

#include "compat/symbols.h"
#include "compat/tracepoints.h"
#include "probe/signal.h"
#include "probe/thunk.h"

struct k_sigaction;
struct kernel_siginfo;

static void on_delivery(void *unused, int number, struct kernel_siginfo *info,
			struct k_sigaction *action)
{
	this_cpu_write(tlk_probe_cpu.record.entry, TLK_ENTRY_SIGNAL);
}

static const struct tlk_handler delivery_handler = TLK_HANDLER(signal_deliver, on_delivery);

int tlk_probe_signals_start(void)
{
	int error = tlk_handler_add(&delivery_handler, NULL);

	return error == -ENOENT ? -EOPNOTSUPP : error;
}

void tlk_probe_signals_stop(void)
{
	tlk_handler_remove(&delivery_handler, NULL);
	tracepoint_synchronize_unregister();
}
