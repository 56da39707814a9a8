// SPDX-License-Identifier: GPL-2.0-only
/*
 * Decides whether supervisor mode is refused. This file owns every check that comes before it: of
 * the processor, of the kernel, of the caller and of the process that is meant. cpu.c owns what
 * only the set-up can find out. The texts of the reasons are rows of linux/trapless_refusals.h.
 *
 * A machine is not refused for clearing buffers and branch history on the way to and from user mode
 * (MDS, TAA, BHI, retbleed's untraining). That protects the kernel from the code that returns or
 * enters, and this code is in supervisor mode itself and can read what it likes. What another
 * process left behind is cleared at that process's own entries and returns. IBRS and call depth
 * differ: the kernel code of other tasks relies on them, too, after a switch inside a call.
 */
#include <linux/capability.h>
#include <linux/cc_platform.h>
#include <linux/context_tracking_state.h>
#include <linux/errno.h>
#include <linux/fdtable.h>
#include <linux/fs.h>
#include <linux/sched/task.h>
#include <linux/security.h>
#include <linux/string.h>
#include <asm/cpufeature.h>
#include <asm/msr.h>

#include "compat/features.h"
#include "compat/task.h"
#include "supervisor/cpu.h"
#include "supervisor/hlt.h"
#include "supervisor/refusal.h"

/* Bits of registers that older headers do not name. */
#define CR4_FRED BIT_ULL(32)

static u64 __init refusals_of_cr4(bool refuse_ibt)
{
	u64 mask = 0;
	u32 low, high;
	u64 cr4;

	asm volatile("mov %%cr4, %0" : "=r" (cr4));
	if (cr4 & CR4_FRED)
		mask |= BIT_ULL(TL_REFUSED_FRED);
	if (refuse_ibt && cr4 & TLK_CR4_LASS)
		mask |= BIT_ULL(TL_REFUSED_LASS);
	if (cr4 & TLK_CR4_CET) {
		rdmsr(TLK_MSR_S_CET, low, high);
		if (refuse_ibt && low & TLK_S_CET_ENDBR)
			mask |= BIT_ULL(TL_REFUSED_IBT);
		if (low & TLK_S_CET_SHADOW_STACK)
			mask |= BIT_ULL(TL_REFUSED_SHSTK);
	}
	return mask;
}

u64 __init tlk_refusals_of_machine(bool refuse_ibt)
{
	u64 mask = refusals_of_cr4(refuse_ibt);

	if (boot_cpu_has(X86_FEATURE_PTI))
		mask |= BIT_ULL(TL_REFUSED_PTI);
	if (boot_cpu_has(X86_FEATURE_KERNEL_IBRS))
		mask |= BIT_ULL(TL_REFUSED_IBRS);
	if (tlk_tracks_call_depth())
		mask |= BIT_ULL(TL_REFUSED_CALL_DEPTH);
	if (boot_cpu_has(X86_FEATURE_XENPV))
		mask |= BIT_ULL(TL_REFUSED_XEN);
	if (boot_cpu_has(X86_FEATURE_TDX_GUEST) || cc_platform_has(CC_ATTR_GUEST_STATE_ENCRYPT))
		mask |= BIT_ULL(TL_REFUSED_CONFIDENTIAL);
	if (context_tracking_enabled())
		mask |= BIT_ULL(TL_REFUSED_CONTEXT);
	return mask;
}

u64 tlk_refusals_of_moment(void)
{
	static bool is_locked;

	/* A lockdown is never lifted, and each question may add a line to the kernel's log. */
	if (!READ_ONCE(is_locked) && security_locked_down(LOCKDOWN_MSR))
		WRITE_ONCE(is_locked, true);
	return READ_ONCE(is_locked) ? BIT_ULL(TL_REFUSED_LOCKDOWN) : 0;
}

static int is_vcpu(const void *data, struct file *file, unsigned int descriptor)
{
	return !strncmp(file->f_path.dentry->d_name.name, "kvm-vcpu", 8);
}

/* KVM changes the registers that supervisor mode changes, while a guest runs. */
static bool runs_a_machine(struct task_struct *leader)
{
	int found = 0;

	task_lock(leader);
	if (leader->files)
		found = iterate_fd(leader->files, 0, is_vcpu, NULL);
	task_unlock(leader);
	return found;
}

static bool has_memory(struct task_struct *leader)
{
	bool has;

	task_lock(leader);
	has = leader->mm && !(leader->flags & (PF_KTHREAD | PF_EXITING));
	task_unlock(leader);
	return has;
}

static int refuse(enum tl_refusal reason, u32 *why, int error)
{
	*why = reason;
	return error;
}

static bool caller_is_capable(void)
{
	return capable(CAP_SYS_RAWIO) && capable(CAP_SYS_MODULE);
}

int tlk_refuse_switch(struct task_struct *leader, u32 flags, u32 *why)
{
	bool ends_by_hlt;

	if (!caller_is_capable())
		return refuse(TL_REFUSED_NOT_CAPABLE, why, -EPERM);
	if (!has_memory(leader))
		return refuse(TL_REFUSED_KERNEL_THREAD, why, -ENOEXEC);
	if (!tlk_may_debug(leader))
		return refuse(TL_REFUSED_OTHER_USER, why, -EPERM);
	/*
	 * This comes before the checks below: reading the target's memory may sleep for long, and
	 * what they test may change meanwhile.
	 */
	ends_by_hlt = !(flags & TL_SWITCH_ALLOW_HLT) && tlk_program_ends_by_hlt(leader);
	if (!tlk_is_ordinary(leader))
		return refuse(TL_REFUSED_PRIVILEGED, why, -EPERM);
	if (!(flags & TL_SWITCH_ANY_USER) && !tlk_is_roots(leader))
		return refuse(TL_REFUSED_NOT_ROOTS, why, -EPERM);
	if (tlk_memory_has_weak_tracer(leader))	/* asked again when none can attach */
		return refuse(TL_REFUSED_TRACED, why, -EPERM);
	if (tlk_is_confined(leader))
		return refuse(TL_REFUSED_CONFINED, why, -EPERM);
	if (tlk_has_shadow_stack(leader))	/* the other threads are checked when they switch */
		return refuse(TL_REFUSED_SHADOW_STACK, why, -ENOEXEC);
	if (test_tsk_thread_flag(leader, TIF_ADDR32))
		return refuse(TL_REFUSED_COMPAT, why, -ENOEXEC);
	if (runs_a_machine(leader))
		return refuse(TL_REFUSED_VCPU, why, -ENOEXEC);
	if (ends_by_hlt)
		return refuse(TL_REFUSED_HLT, why, -ENOEXEC);
	return 0;
}

/* Anyone may leave supervisor mode; taking others out takes the same rights as putting them in. */
int tlk_refuse_return(struct task_struct *leader, u32 *why)
{
	if (leader != current->group_leader && !caller_is_capable())
		return refuse(TL_REFUSED_NOT_CAPABLE, why, -EPERM);
	return 0;
}
