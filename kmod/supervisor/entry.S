/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Takes system calls of threads in supervisor mode in from `syscall`, which finds MSR_LSTAR
 * pointing here, and out again without leaving supervisor mode. This file owns the registers
 * between the two. call.c owns what the kernel wants done before a return.
 *
 * Figures are instructions of one call that has nothing to do on either way: 42, of which the
 * kernel's own entry would execute 20 or so as well; 43 with the mark of kernels built for IBT.
 */
#include <linux/linkage.h>
#include <asm/asm.h>
#include <asm/nospec-branch.h>
#include <asm/percpu.h>
#include <asm/processor-flags.h>
#include <asm/unwind_hints.h>

#include "compat/unwind.h"
#include "supervisor/offsets.h"
#include "supervisor/entry.h"

#define CPU(field) PER_CPU_VAR(tlk_supervisor_cpu + CPU_##field)

	.text

/*
 * From user code at privilege level 3 or 0: rax number, rdi rsi rdx r10 r8 r9 arguments, rcx where
 * to return, r11 flags, rsp the user's, GS the user's, interrupts off. At level 0 `syscall` does
 * exactly what it does at 3.
 *
 * The frame is the thread's own struct pt_regs, at the top of its kernel stack. Of it, only what
 * a handler may look at is stored; cs and ss stand there since the thread last came in through the
 * kernel's entry. ax, bx, bp and r12 to r15 are stored where the kernel may look: at exit work.
 *
 * The indirect branches here are not retpolines. Those would keep other programs from steering
 * this processor's speculation at level 0; but the program that is being served runs there, too,
 * with indirect branches of its own. docs/supervisor-mode.md says what is given up. Calls of other
 * programs come here as well (kvm.c says when): their way to the kernel has no indirect branch.
 */
SYM_CODE_START(tlk_supervisor_call)
	TLK_UNWIND_HINT_NONE
	ENDBR					/* other programs' calls come here tracked */
	swapgs
	movq	%rsp, CPU(user_sp)
	movq	CPU(frame), %rsp
	TLK_UNWIND_HINT_FRAME
	orl	$X86_EFLAGS_IF, %r11d		/* at level 0 popf can clear it: until here */
	movq	%rcx, REGS_ip(%rsp)
	movq	%r11, REGS_flags(%rsp)
	movq	CPU(thread), %rcx
	andl	$FLAGS_NOT_OURS, %r11d
	orq	THREAD_syscall_work(%rcx), %r11
	jnz	.Lto_kernel

	movq	%rdi, REGS_di(%rsp)
	movq	%rsi, REGS_si(%rsp)
	movq	%rdx, REGS_dx(%rsp)
	movq	%r10, REGS_r10(%rsp)
	movq	%r8, REGS_r8(%rsp)
	movq	%r9, REGS_r9(%rsp)
	movq	%rax, REGS_orig_ax(%rsp)
	cmpq	$(CALLS - 1), %rax		/* bounds the index in speculation, too */
	cmovaq	CPU(beyond), %rax
	movq	CPU(user_sp), %rcx
	movq	%rcx, REGS_sp(%rsp)
	movq	%rsp, %rdi
	TLK_ENTER_FRAME(REGS_bp)
	sti
	ANNOTATE_RETPOLINE_SAFE
	call	*tlk_supervisor_calls(,%rax,8)
	cli
	movq	CPU(thread), %r11
	testl	$THREAD_EXIT_WORK, THREAD_flags(%r11)
	jnz	.Lexit_work
	incq	CPU(direct)

.Lreturn:
	TLK_LEAVE_FRAME(REGS_bp)
	movq	REGS_r8(%rsp), %r8
	movq	REGS_r9(%rsp), %r9
	movq	REGS_r10(%rsp), %r10
	movq	REGS_dx(%rsp), %rdx
	movq	REGS_si(%rsp), %rsi
	movq	REGS_di(%rsp), %rdi
	movq	REGS_ip(%rsp), %rcx
	movq	REGS_flags(%rsp), %r11
	addq	$REGS_flags, %rsp
	TLK_UNWIND_HINT_NONE
	swapgs
	popfq
	/*
	 * Interrupts are on again, and two instructions are left. faults.S knows their addresses
	 * and completes them for an interrupt that comes here.
	 */
SYM_INNER_LABEL(tlk_supervisor_return_sp, SYM_L_GLOBAL)
	TLK_ANNOTATE_NOENDBR
	popq	%rsp
SYM_INNER_LABEL(tlk_supervisor_return_jump, SYM_L_GLOBAL)
	TLK_ANNOTATE_NOENDBR
	ANNOTATE_RETPOLINE_SAFE
	jmp	*%rcx

	/* Only rcx, r11 and rsp have changed: give the call to the kernel's entry. */
.Lto_kernel:
	TLK_UNWIND_HINT_FRAME
	incq	CPU(kernel)
	movq	REGS_ip(%rsp), %rcx
	movq	REGS_flags(%rsp), %r11
	andl	$~TLK_FLAGS_OF_LEVEL_0, %r11d
	movq	CPU(user_sp), %rsp
	TLK_UNWIND_HINT_NONE
	swapgs
	jmp	__SCT__tlk_kernel_entry		/* static_call(tlk_kernel_entry) */

.Lexit_work:
	TLK_UNWIND_HINT_FRAME
	movq	%rax, REGS_ax(%rsp)
	movq	%rbx, REGS_bx(%rsp)
	TLK_STORE_BP(REGS_bp)
	movq	%r12, REGS_r12(%rsp)
	movq	%r13, REGS_r13(%rsp)
	movq	%r14, REGS_r14(%rsp)
	movq	%r15, REGS_r15(%rsp)
	movq	%rsp, %rdi
	call	tlk_supervisor_exit_work
	cmpl	$TLK_LEAVE_TO_USER, %eax
	ja	.Lgone
	je	.Lto_user
	movq	REGS_bx(%rsp), %rbx
	movq	REGS_bp(%rsp), %rbp
	movq	REGS_r12(%rsp), %r12
	movq	REGS_r13(%rsp), %r13
	movq	REGS_r14(%rsp), %r14
	movq	REGS_r15(%rsp), %r15
	movq	REGS_ax(%rsp), %rax
	jmp	.Lreturn

	/* The frame is complete, interrupts are off: the kernel's own return checks and uses it. */
.Lto_user:
	jmp	__SCT__tlk_kernel_back

	/*
	 * The thread has no state any more, so nothing keeps the module loaded while the kernel
	 * does its exit work, which may sleep. The work returns to the kernel's return, not here.
	 */
.Lgone:
	movq	%rsp, %rdi
	xorl	%esi, %esi
	pushq	tlk_kernel_return(%rip)
	TLK_UNWIND_HINT_NONE
	jmp	__SCT__tlk_kernel_leave
SYM_CODE_END(tlk_supervisor_call)
_ASM_NOKPROBE(tlk_supervisor_call)

/*
 * The table of calls leads here for those that need the whole frame, or a return to user mode. It
 * is called with rdi the frame, interrupts on.
 */
SYM_CODE_START(tlk_supervisor_hand_over)
	TLK_UNWIND_HINT_NONE
	ENDBR
	cli
	incq	CPU(kernel)
	movq	%rdi, %rsp			/* the return address goes */
	TLK_UNWIND_HINT_FRAME
	movq	REGS_di(%rsp), %rdi
	movq	REGS_orig_ax(%rsp), %rax
	movq	REGS_ip(%rsp), %rcx
	movq	REGS_flags(%rsp), %r11
	TLK_LEAVE_FRAME(REGS_bp)
	movq	REGS_sp(%rsp), %rsp
	TLK_UNWIND_HINT_NONE
	swapgs
	jmp	__SCT__tlk_kernel_entry		/* static_call(tlk_kernel_entry) */
SYM_CODE_END(tlk_supervisor_hand_over)
_ASM_NOKPROBE(tlk_supervisor_hand_over)
