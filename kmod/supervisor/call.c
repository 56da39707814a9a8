// SPDX-License-Identifier: GPL-2.0-only
/*
 * The calls that threads in supervisor mode make: which handler answers which number, and what
 * happens before a call returns when the kernel has something to do first. Owns the table and the
 * way out; the way in is supervisor/entry.S.
 */
#include <linux/errno.h>
#include <linux/irqflags.h>
#include <linux/kernel.h>
#include <linux/kvm.h>
#include <linux/static_call.h>
#include <asm/segment.h>
#include <asm/unistd.h>

#include "compat/entry.h"
#include "compat/supervisor.h"
#include "compat/symbols.h"
#include "limits.h"
#include "ring/policy.h"
#include "supervisor/call.h"
#include "supervisor/cpu.h"
#include "supervisor/leave.h"
#include "supervisor/process.h"
#include "supervisor/thread.h"

/* Places in the kernel's entry code that the assembly goes to; the third is a function. */
u64 tlk_kernel_entry __ro_after_init;
u64 tlk_kernel_return __ro_after_init;
u64 tlk_kernel_exit __ro_after_init;

/* Where functions seem to return to whose end is traced; 0 where the kernel lacks it. */
static unsigned long traced_returns[3] __ro_after_init;

sys_call_ptr_t tlk_supervisor_calls[TLK_NUMBERS] __ro_after_init;

/*
 * Calls that the kernel's own entry gets: those that change the frame they were called with, start
 * from a copy of it or do not return; and those after which the thread must be in user mode, for
 * they can confine it (seccomp, in two ways).
 */
static const u16 kernel_calls[] __initconst = {
	__NR_clone, __NR_clone3, __NR_fork, __NR_vfork,
	__NR_execve, __NR_execveat, __NR_exit, __NR_exit_group, __NR_rt_sigreturn,
	__NR_ptrace, __NR_iopl, __NR_modify_ldt, __NR_arch_prctl,
	__NR_prctl, __NR_seccomp,
#ifdef __NR_uretprobe
	__NR_uretprobe,
#endif
#ifdef __NR_uprobe
	__NR_uprobe,
#endif
};

static long no_ioctl(const struct pt_regs *regs)
{
	return -ENOSYS;
}

DEFINE_STATIC_CALL(kernel_ioctl, no_ioctl);

/*
 * A guest's exit loads the IDT and CR4 that KVM has noted: the kernel's, without our stubs. So a
 * thread that starts to run guests, be it in a batch, leaves supervisor mode. That requests are
 * refused from then on is supervisor/refusal.c's.
 */
static long ioctl_call(const struct pt_regs *regs)
{
	if (unlikely((u32)regs->si == KVM_RUN))
		tlk_process_give_up();
	return static_call(kernel_ioctl)(regs);
}

static int __init table_init(const sys_call_ptr_t *kernel)
{
	sys_call_ptr_t hand_over = (sys_call_ptr_t)tlk_supervisor_hand_over;
	unsigned int i;

	static_assert(__NR_syscalls <= TLK_NUMBERS);
	for (i = 0; i < TLK_NUMBERS; i++)
		tlk_supervisor_calls[i] = i < __NR_syscalls ? kernel[i] : hand_over;
	for (i = 0; i < ARRAY_SIZE(kernel_calls); i++)
		tlk_supervisor_calls[kernel_calls[i]] = hand_over;
	static_call_update(kernel_ioctl, kernel[__NR_ioctl]);
	tlk_supervisor_calls[__NR_ioctl] = ioctl_call;
	tlk_policy_replace(__NR_ioctl, ioctl_call);
	return 0;
}

int __init tlk_supervisor_calls_init(const sys_call_ptr_t *table, unsigned long *kernel_entry)
{
	void *entry = tlk_symbol("entry_SYSCALL_64");
	void *back = tlk_symbol("swapgs_restore_regs_and_return_to_usermode");
	void *leave = tlk_leave_init();

	if (!entry || !back || !leave)
		return -ENOENT;
	traced_returns[0] = (unsigned long)tlk_symbol("return_to_handler");
	traced_returns[1] = (unsigned long)tlk_symbol("arch_rethook_trampoline");
	traced_returns[2] = (unsigned long)tlk_symbol("__kretprobe_trampoline");
	tlk_kernel_entry = (u64)entry;
	tlk_kernel_return = (u64)back;
	tlk_kernel_exit = (u64)leave;
	*kernel_entry = (unsigned long)entry;
	return table_init(table);
}

/*
 * The two calls of the entry leave their return address right below the thread's frame, where every
 * way into the kernel leaves one of its own. Tracers replace that of a handler, but none of the
 * kernel's, whose entry functions are not traced.
 */
bool tlk_supervisor_call_is_open(void)
{
	unsigned long below = READ_ONCE_NOCHECK(((unsigned long *)task_pt_regs(current))[-1]);
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(traced_returns); i++)
		if (below == traced_returns[i])
			return true;
	return below >= (unsigned long)tlk_supervisor_call &&
	       below < (unsigned long)tlk_supervisor_hand_over;
}

/* What the kernel tests before it returns by SYSRET, and that it is all ordinary. */
static bool may_return_here(const struct pt_regs *regs)
{
	return regs->cx == regs->ip && regs->r11 == regs->flags && regs->cs == __USER_CS &&
	       regs->ss == __USER_DS && !(regs->flags & TLK_SUPERVISOR_FLAGS_NOT_OURS) &&
	       regs->ip < BIT(47);
}

/* All exit work is done and interrupts are off. */
static unsigned int count_return(struct tlk_mark *mark, const struct pt_regs *regs)
{
	if (tlk_supervisor_cpu_is_here(current) && may_return_here(regs)) {
		mark->counts.worked++;
		return TLK_LEAVE_TO_SUPERVISOR;
	}
	mark->counts.left++;
	return TLK_LEAVE_TO_USER;
}

/*
 * The call is made; regs->ax has its result. The kernel does its work (signals, rescheduling,
 * task work, the floating-point registers) on a frame like that of any call. If it is still that
 * call's frame afterwards, and this processor is armed, the call returns in supervisor mode.
 *
 * A thread that is switched back in that work, or in a call that does such work itself (io_uring's
 * waits do), is still here: its mark stays until the work is done, or is attached again by a
 * request that came meanwhile. Without it nothing holds the module, and the last round of exit
 * work returns to the kernel. Until it has left this text it does not sleep, which is what
 * tlk_supervisor_exit() waits for.
 */
unsigned int tlk_supervisor_exit_work(struct pt_regs *regs)
{
	struct tlk_mark *mark;

	/* The hardware's flag was cleared behind lockdep's back; for it, interrupts are on. */
	raw_local_irq_enable();
	regs->cs = __USER_CS;
	regs->ss = __USER_DS;
	regs->cx = regs->ip;
	regs->r11 = regs->flags;
	mark = tlk_mark_current() ?: tlk_mark_known();
	while (mark) {
		tlk_leave(regs);
		if (likely(!mark->leaving))
			return count_return(mark, regs);
		raw_local_irq_enable();
		mark->counts.left++;
		if (tlk_mark_free(mark))
			break;
		mark->counts.left--;
	}
	if (tlk_leave_wants_interrupts_off())
		local_irq_disable();
	return TLK_LEAVE_GONE;
}
