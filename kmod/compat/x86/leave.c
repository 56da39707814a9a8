// SPDX-License-Identifier: GPL-2.0-only
/*
 * Does the work before a task's return to user mode from supervisor mode. This file owns which of
 * the kernel's functions does it. It is called through a static call, as those of symbols.c are and
 * for the same reasons.
 *
 * Later kernels have inlined syscall_exit_to_user_mode() everywhere (upstream commit
 * "entry: Inline syscall_exit_to_user_mode()", 6.16). There the end of an interrupt from user mode
 * takes its place. It does the same work except tracing the call's end, and a traced call does not
 * come here: it goes through the kernel's entry.
 */
#include <linux/entry-common.h>
#include <linux/init.h>
#include <linux/irqflags.h>
#include <linux/static_call.h>

#include "compat/symbols.h"
#include "compat/x86/leave.h"

static void no_leave_call(struct pt_regs *regs)
{
}

static void no_leave_interrupt(struct pt_regs *regs, irqentry_state_t state)
{
}

TLK_CHECK_STAND_IN(syscall_exit_to_user_mode, no_leave_call);
TLK_CHECK_STAND_IN(irqentry_exit, no_leave_interrupt);

DEFINE_STATIC_CALL(leave_call, no_leave_call);
DEFINE_STATIC_CALL(leave_interrupt, no_leave_interrupt);

static bool as_interrupt __ro_after_init;

void *__init tlk_leave_init(void)
{
	void *address = tlk_symbol("syscall_exit_to_user_mode");

	if (address) {
		static_call_update(leave_call, address);
		return address;
	}
	address = tlk_symbol("irqentry_exit");
	if (address) {
		static_call_update(leave_interrupt, address);
		as_interrupt = true;
	}
	return address;
}

bool tlk_leave_wants_interrupts_off(void)
{
	return as_interrupt;
}

void tlk_leave(struct pt_regs *regs)
{
	if (as_interrupt) {
		local_irq_disable();
		static_call(leave_interrupt)(regs, (irqentry_state_t){});
	} else {
		static_call(leave_call)(regs);
	}
}
