// SPDX-License-Identifier: GPL-2.0-only
/*
 * Serves the calls that threads in supervisor mode make: which handler answers which number, and
 * what happens before a call returns when the kernel has something to do first. This file owns the
 * table and the exit work. entry.S owns the way in and the way out without exit work.
 */
#include <linux/errno.h>
#include <linux/irqflags.h>
#include <linux/kernel.h>
#include <linux/kvm.h>
#include <linux/static_call.h>
#include <asm/segment.h>
#include <asm/unistd.h>

#include "compat/assert.h"
#include "compat/entry.h"
#include "compat/features.h"
#include "compat/symbols.h"
#include "compat/task.h"
#include "compat/x86/leave.h"
#include "limits.h"
#include "ring/dispatch.h"
#include "supervisor/call.h"
#include "supervisor/cpu.h"
#include "supervisor/entry.h"
#include "supervisor/process.h"
#include "supervisor/thread.h"

/*
 * Places in the kernel's entry code. entry.S jumps to the first three, and leaves the second as a
 * return address, too. They are static calls, because those jumps are direct: the second has no
 * ENDBR, and where an exit work ends, branches may be tracked again. faults.S compares with the
 * last, the instruction that returns to user mode.
 */
DEFINE_STATIC_CALL_NULL(tlk_kernel_entry, tlk_supervisor_call);
DEFINE_STATIC_CALL_NULL(tlk_kernel_back, tlk_supervisor_call);
DEFINE_STATIC_CALL_NULL(tlk_kernel_leave, tlk_supervisor_call);
u64 tlk_kernel_return __ro_after_init;
u64 tlk_kernel_iret __ro_after_init;

sys_call_ptr_t tlk_supervisor_calls[TLK_NUMBERS] __ro_after_init;

/*
 * Calls that go to the kernel's own entry: those that change the frame they were called with, start
 * from a copy of it or do not return; and those after which the thread must be in user mode,
 * because they can confine it (seccomp, in two ways).
 */
static const u16 kernel_calls[] __initconst = {
	__NR_clone, __NR_clone3, __NR_fork, __NR_vfork,
	__NR_execve, __NR_execveat, __NR_exit, __NR_exit_group, __NR_rt_sigreturn,
	__NR_ptrace, __NR_iopl, __NR_modify_ldt, __NR_arch_prctl,
	__NR_prctl, __NR_seccomp,
	TLK_NUMBER_OF_URETPROBE
	TLK_NUMBER_OF_UPROBE
};

static long no_ioctl(const struct pt_regs *regs)
{
	return -ENOSYS;
}

DEFINE_STATIC_CALL(kernel_ioctl, no_ioctl);

/*
 * A guest's exit loads the IDT and CR4 that KVM has noted: the kernel's, without the module's
 * stubs. So a thread that starts to run guests, also in a batch, leaves supervisor mode. refusal.c
 * refuses requests from then on.
 */
static long ioctl_call(const struct pt_regs *regs)
{
	if (unlikely((u32)regs->si == KVM_RUN))
		tlk_process_leave();
	return static_call(kernel_ioctl)(regs);
}

static void __init table_init(const sys_call_ptr_t *kernel)
{
	sys_call_ptr_t hand_over = (sys_call_ptr_t)tlk_supervisor_hand_over;
	unsigned int i;

	static_assert(__NR_syscalls <= TLK_CALL_BEYOND);
	for (i = 0; i < TLK_NUMBERS; i++)
		tlk_supervisor_calls[i] = i < __NR_syscalls ? kernel[i] : hand_over;
	for (i = 0; i < ARRAY_SIZE(kernel_calls); i++)
		tlk_supervisor_calls[kernel_calls[i]] = hand_over;
	static_call_update(kernel_ioctl, kernel[__NR_ioctl]);
	tlk_supervisor_calls[__NR_ioctl] = ioctl_call;
	tlk_dispatch_replace(__NR_ioctl, ioctl_call);
}

int __init tlk_supervisor_calls_init(const sys_call_ptr_t *table, unsigned long *kernel_entry)
{
	void (*entry)(void) = tlk_symbol("entry_SYSCALL_64");
	void *back = tlk_symbol("swapgs_restore_regs_and_return_to_usermode");
	void *iret = tlk_symbol("native_irq_return_iret");
	void *leave = tlk_leave_init();

	if (!entry || !back || !iret || !leave)
		return -ENOENT;
	static_call_update(tlk_kernel_entry, entry);
	static_call_update(tlk_kernel_back, (void (*)(void))back);
	static_call_update(tlk_kernel_leave, (void (*)(void))leave);
	tlk_kernel_return = (u64)back;
	tlk_kernel_iret = (u64)iret;
	*kernel_entry = (unsigned long)entry;
	table_init(table);
	return 0;
}

/* Makes the tests that the kernel makes before it returns by SYSRET. Returns whether all pass. */
static bool may_return_here(const struct pt_regs *regs)
{
	return regs->cx == regs->ip && regs->r11 == regs->flags && regs->cs == __USER_CS &&
	       regs->ss == __USER_DS && !(regs->flags & TLK_SUPERVISOR_FLAGS_NOT_OURS) &&
	       regs->ip < BIT(47);
}

/* Counts a return and says where it goes. All exit work is done and interrupts are off. */
static unsigned int count_return(struct tlk_thread_state *state, const struct pt_regs *regs)
{
	TLK_ASSERT_HARDWARE_IRQS_OFF();
	if (tlk_supervisor_cpu_is_here(current) && may_return_here(regs)) {
		state->cpu.counts.worked++;
		return TLK_LEAVE_TO_SUPERVISOR;
	}
	state->cpu.counts.left++;
	return TLK_LEAVE_TO_USER;
}

/*
 * Does a call's exit work when the call is made; regs->ax has its result. The kernel does the work
 * (signals, rescheduling, task work, the floating-point registers) on a frame like that of any
 * call. If it is still that call's frame afterwards, and this processor is armed, the call returns
 * in supervisor mode.
 *
 * A thread that is switched back in that work, or in a call that does such work itself (io_uring's
 * waits do), is still here: its state stays until the work is done, or is attached again by a
 * request that came meanwhile. Without a state nothing holds the module, so the last round of exit
 * work returns to the kernel and not here. The thread does not sleep before it has left this text:
 * tlk_supervisor_exit() relies on that.
 */
unsigned int tlk_supervisor_exit_work(struct pt_regs *regs)
{
	struct tlk_thread_state *state;

	TLK_ASSERT_HARDWARE_IRQS_OFF();
	/* Assembly has cleared the flag unseen by lockdep, which takes interrupts to be on. */
	raw_local_irq_enable();
	regs->cs = __USER_CS;
	regs->ss = __USER_DS;
	regs->cx = regs->ip;
	regs->r11 = regs->flags;
	state = tlk_thread_attached() ?: tlk_thread_current();
	while (state) {
		tlk_leave(regs);
		if (likely(!state->leaving))
			return count_return(state, regs);
		raw_local_irq_enable();
		state->cpu.counts.left++;
		if (tlk_process_free_thread(state))
			break;
		state->cpu.counts.left--;
	}
	if (tlk_leave_wants_interrupts_off())
		local_irq_disable();
	return TLK_LEAVE_GONE;
}
