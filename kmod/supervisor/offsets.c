// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tells the assembly the layouts and bits of this kernel that it needs, as numbers: kbuild compiles
 * this file to text and makes offsets.h of it. This file owns the list. Nothing of it is linked.
 */
#include <linux/kbuild.h>
#include <linux/ptrace.h>
#include <linux/sched.h>
#include <linux/trapless.h>

#include "compat/entry.h"
#include "limits.h"
#include "supervisor/cpu.h"

#define TASK_INFO(field) offsetof(struct task_struct, thread_info.field)

void tlk_offsets(void);
void tlk_offsets(void)
{
	OFFSET(REGS_r15, pt_regs, r15);
	OFFSET(REGS_r14, pt_regs, r14);
	OFFSET(REGS_r13, pt_regs, r13);
	OFFSET(REGS_r12, pt_regs, r12);
	OFFSET(REGS_bp, pt_regs, bp);
	OFFSET(REGS_bx, pt_regs, bx);
	OFFSET(REGS_r11, pt_regs, r11);
	OFFSET(REGS_r10, pt_regs, r10);
	OFFSET(REGS_r9, pt_regs, r9);
	OFFSET(REGS_r8, pt_regs, r8);
	OFFSET(REGS_ax, pt_regs, ax);
	OFFSET(REGS_cx, pt_regs, cx);
	OFFSET(REGS_dx, pt_regs, dx);
	OFFSET(REGS_si, pt_regs, si);
	OFFSET(REGS_di, pt_regs, di);
	OFFSET(REGS_orig_ax, pt_regs, orig_ax);
	OFFSET(REGS_ip, pt_regs, ip);
	OFFSET(REGS_flags, pt_regs, flags);
	OFFSET(REGS_sp, pt_regs, sp);
	BLANK();
	/* thread_info is the first thing in a task: one pointer is both. */
	DEFINE(THREAD_flags, TASK_INFO(flags));
	DEFINE(THREAD_syscall_work, TASK_INFO(syscall_work));
	DEFINE(THREAD_EXIT_WORK, (int)TLK_SUPERVISOR_EXIT_WORK);
	DEFINE(FLAGS_NOT_OURS, TLK_SUPERVISOR_FLAGS_NOT_OURS);
	DEFINE(CALLS, TLK_NUMBERS);
	BLANK();
	OFFSET(CPU_user_sp, tlk_supervisor_cpu, user_sp);
	OFFSET(CPU_frame, tlk_supervisor_cpu, frame);
	OFFSET(CPU_thread, tlk_supervisor_cpu, thread);
	OFFSET(CPU_direct, tlk_supervisor_cpu, direct);
	OFFSET(CPU_beyond, tlk_supervisor_cpu, beyond);
	OFFSET(CPU_kernel, tlk_supervisor_cpu, kernel);
	OFFSET(CPU_stack, tlk_supervisor_cpu, stack);
	BLANK();
	DEFINE(CR4_LASS, (int)TLK_CR4_LASS);
	DEFINE(MSR_S_CET, TLK_MSR_S_CET);
	DEFINE(S_CET_ENDBR_BIT, TLK_S_CET_ENDBR_BIT);
	BLANK();
	OFFSET(STACK_entry_stack, tlk_supervisor_stack, entry_stack);
	OFFSET(STACK_ist, tlk_supervisor_stack, ist);
	OFFSET(STACK_espfix, tlk_supervisor_stack, espfix);
	OFFSET(STACK_spill, tlk_supervisor_stack, spill);
	OFFSET(STACK_demotions, tlk_supervisor_stack, demotions);
	OFFSET(STACK_thread, tlk_supervisor_stack, thread);
	OFFSET(STACK_raised_sum, tlk_supervisor_stack, raised_sum);
	OFFSET(STACK_raised_error, tlk_supervisor_stack, raised_error);
	DEFINE(STACK_BYTES, sizeof(struct tlk_supervisor_stack));
	DEFINE(STACK_AREA_BYTES, TLK_STACK_AREA_BYTES);
	DEFINE(DOUBLE_FAULT_IST, (IST_INDEX_DF - TLK_IST_INDEX) * (int)sizeof(u64));
	DEFINE(ESPFIX_ENTRY, (long)ESPFIX_PGD_ENTRY);
	DEFINE(ESPFIX_SHIFT, P4D_SHIFT);
	BLANK();
	DEFINE(DEMOTED_INTERRUPT, TL_DEMOTED_INTERRUPT);
	DEFINE(DEMOTED_PAGE_FAULT, TL_DEMOTED_PAGE_FAULT);
	DEFINE(DEMOTED_EXCEPTION, TL_DEMOTED_EXCEPTION);
	DEFINE(DEMOTED_DEBUG, TL_DEMOTED_DEBUG);
	DEFINE(DEMOTED_NMI, TL_DEMOTED_NMI);
	DEFINE(DEMOTED_MACHINE_CHECK, TL_DEMOTED_MACHINE_CHECK);
	DEFINE(DEMOTED_COMPAT_CALL, TL_DEMOTED_COMPAT_CALL);
}
