/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Receives every interrupt and fault on a processor that has a thread in supervisor mode, by stubs
 * of a few instructions. A frame from user code at level 0 is made to look as if it came from level
 * 3 (it is demoted), and every frame goes to the kernel's own handler. This file owns the frames on
 * the way there. It handles nothing itself.
 *
 * At level 0 an interrupt does not switch stacks by itself, and user code's stack is no place for a
 * frame. So all gates use one interrupt stack of the TSS that stock kernels leave free. A stub
 * copies the frame from there to where the kernel's handler would have found it and leaves that
 * stack with its last instructions.
 *
 * One kind of fault does not go to the kernel at once: one whose instruction might not fault at the
 * other level (RETRY, RAISE), or with user mode's selectors (OWN_SELECTORS). The instruction has
 * had no effect yet, so it is tried again that way.
 */
#include <linux/linkage.h>
#include <asm/asm.h>
#include <asm/nospec-branch.h>
#include <asm/percpu.h>
#include <asm/processor-flags.h>
#include <asm/segment.h>
#include <asm/trapnr.h>
#include <asm/unwind_hints.h>

#include "compat/unwind.h"
#include "supervisor/entry.h"
#include "supervisor/offsets.h"

#define PF_PROTECTION	1		/* bits of a page fault's error code */
#define PF_USER		4
#define VECTOR_COMPAT_CALL 0x80
#define VECTOR_CP	21
#define CR4_BITS	(X86_CR4_SMEP | X86_CR4_SMAP | CR4_LASS)
#define VECTOR_FIRST_INTERRUPT 0x20
#define VSYSCALL_PAGE_NUMBER 0xa00000	/* minus the address of the vsyscall page */

	.text

/*
 * One entry for each vector: the stack gets an error code where the processor gives none, and the
 * vector.
 */
	.p2align 4
SYM_CODE_START(tlk_supervisor_stubs)
	.set	vector, 0
	.rept	256
	.p2align 4
	.if vector == X86_TRAP_DF || (vector >= X86_TRAP_TS && vector <= X86_TRAP_PF) || \
	    vector == X86_TRAP_AC || vector == VECTOR_CP || vector == 29 || vector == 30
	TLK_UNWIND_HINT_IRET(8)
	ENDBR
	pushq	$vector
	jmp	stub_with_error
	.else
	TLK_UNWIND_HINT_IRET(0)
	ENDBR
	pushq	$0				/* error code */
	pushq	$vector
	jmp	stub_without_error
	.endif
	.set	vector, vector + 1
	.endr
	.p2align 4
SYM_CODE_END(tlk_supervisor_stubs)

/* The words on the interrupt stack once a stub has saved three registers. */
#define F_DX	0
#define F_CX	8
#define F_AX	16
#define F_VECTOR 24
#define F_ERROR	32
#define F_IP	40
#define F_CS	48
#define F_FLAGS	56
#define F_SP	64
#define F_SS	72

/* The frame that iretq reads. */
#define IRET_CS	8
#define IRET_SS	32

/* The struct tlk_supervisor_stack that the stack pointer is in. */
.macro STACK_BASE reg
	movq	%rsp, \reg
	andq	$-STACK_BYTES, \reg
.endm

/*
 * Is the interrupted code user code, at whatever level? The macro goes to \user for user code and
 * falls through for kernel code. Kernel code is at the canonical negative addresses. A jump to an
 * address that is not canonical faults with that address, and is user code's. A return in
 * supervisor mode that was interrupted in its last two instructions is completed here. The vsyscall
 * page is user code with a kernel's address.
 */
#define KERNEL_ADDRESS_SHIFT 47

.macro CLASSIFY user
	movq	F_IP(%rsp), %rcx
	movq	%rcx, %rdx
	sarq	$KERNEL_ADDRESS_SHIFT, %rdx
	incq	%rdx
	jnz	\user
	cmpq	$tlk_supervisor_return_jump, %rcx
	je	1f
	cmpq	$tlk_supervisor_return_sp, %rcx
	je	2f
	leaq	VSYSCALL_PAGE_NUMBER(%rcx), %rdx
	shrq	$12, %rdx
	jz	\user
	jmp	3f
2:	movq	F_SP(%rsp), %rcx		/* popq %rsp is still to do */
	movq	(%rcx), %rcx
	movq	%rcx, F_SP(%rsp)
1:	movq	F_CX(%rsp), %rcx		/* jmp *%rcx is still to do */
	movq	%rcx, F_IP(%rsp)
	jmp	\user
3:
.endm

/*
 * Makes the frame one of level 3 and counts it. A page fault by protection may be due to SMEP or
 * SMAP: the kernel writes CR4 from its own copy now and then (to flush the TLB), which sets them
 * and LASS again. The macro clears them and tells the kernel of a page that is not there. The
 * kernel finds the page, and the access is tried again if it is allowed. For a fault by protection
 * the kernel would send a signal for any read, without a look at the page.
 */
.macro DEMOTE
	movq	$__USER_CS, F_CS(%rsp)
	movq	$__USER_DS, F_SS(%rsp)
	orq	$X86_EFLAGS_IF, F_FLAGS(%rsp)
	andq	$~TLK_FLAGS_OF_LEVEL_0, F_FLAGS(%rsp)
	STACK_BASE %rdx
	movl	$DEMOTED_INTERRUPT, %ecx
	cmpq	$VECTOR_FIRST_INTERRUPT, F_VECTOR(%rsp)
	jb	1f
	cmpq	$VECTOR_COMPAT_CALL, F_VECTOR(%rsp)
	jne	3f
	movl	$DEMOTED_COMPAT_CALL, %ecx
	jmp	3f
1:	movl	$DEMOTED_EXCEPTION, %ecx
	cmpq	$X86_TRAP_PF, F_VECTOR(%rsp)
	jne	3f
	movl	$DEMOTED_PAGE_FAULT, %ecx
	orq	$PF_USER, F_ERROR(%rsp)
	testb	$PF_PROTECTION, F_ERROR(%rsp)
	jz	3f
	movq	%cr4, %rax
	testl	$CR4_BITS, %eax
	jz	3f
	andq	$~CR4_BITS, %rax
	movq	%rax, %cr4
	andq	$~PF_PROTECTION, F_ERROR(%rsp)
3:	movq	STACK_demotions(%rdx), %rdx
	incq	(%rdx,%rcx,8)
.endm

/*
 * Computes a checksum of the instruction pointer and the registers. When the same instruction is
 * reached again for another operand, the checksum differs: the operand, its address or the loop's
 * counter is in a register.
 */
.macro SUM_UP sum
	movq	F_IP(%rsp), \sum
	.irp	value, F_SP(%rsp), F_AX(%rsp), F_CX(%rsp), F_DX(%rsp), %rbx, %rbp, %rsi, %rdi, \
		%r8, %r9, %r10, %r11, %r12, %r13, %r14, %r15
	leaq	(\sum,\sum,2), \sum
	addq	\value, \sum
	.endr
.endm

/*
 * Tries an instruction again in user mode, where its fault at level 0 may be none: to load 0x2b
 * into ss, or to return to 0x33. A fault that the program would have in user mode comes again from
 * there and goes to the kernel. Two cases are left out: an instruction that RAISE has just brought
 * here from level 3, which faults at either level, and an address at which iretq would fault.
 * #CP says that branches are tracked again, and #GP or #SS may be LASS's, which is in CR4 with SMEP
 * and SMAP: the kernel has put it back. They are switched off again.
 */
.macro RETRY
	movl	F_VECTOR(%rsp), %eax
	cmpl	$VECTOR_CP, %eax
	jne	3f
	movl	tlk_supervisor_tracking(%rip), %eax
	movl	tlk_supervisor_tracking + 4(%rip), %edx
	movl	$MSR_S_CET, %ecx
	btrl	$S_CET_ENDBR_BIT, %eax
	jnc	1f
	wrmsr
	jmp	2f
3:	subl	$X86_TRAP_NP, %eax		/* #NP, #SS and #GP */
	cmpl	$(X86_TRAP_GP - X86_TRAP_NP), %eax
	ja	1f
	movq	F_IP(%rsp), %rdx
	shrq	$KERNEL_ADDRESS_SHIFT, %rdx
	jnz	1f
	movq	%cr4, %rax
	testl	$CR4_LASS, %eax
	jz	4f
	andq	$~CR4_BITS, %rax
	movq	%rax, %cr4
	jmp	2f
4:	STACK_BASE %rdx
	SUM_UP	%rcx
	cmpq	%rcx, STACK_raised_sum(%rdx)
	movq	$0, STACK_raised_sum(%rdx)
	jne	2f
	cmpq	$__KERNEL_CS, STACK_raised_error(%rdx)
	je	1f
	cmpq	$__KERNEL_DS, F_ERROR(%rsp)
	je	1f
2:	movq	$TLK_VECTOR_RETRY, F_VECTOR(%rsp)
1:
.endm

/*
 * Tries an instruction again at level 0, if it faulted in user mode because it loads a selector of
 * level 0: the thread has read it from cs or ss before it was demoted. That is for a thread that
 * may be in supervisor mode and has no filter or tracer of calls. The level is all that changes, so
 * the instruction does what it would have done without the demotion.
 */
.macro RAISE
	cmpl	$X86_TRAP_GP, F_VECTOR(%rsp)
	jne	1f
	movq	F_ERROR(%rsp), %rax
	cmpq	$__KERNEL_CS, %rax
	je	2f
	cmpq	$__KERNEL_DS, %rax
	jne	1f
2:	cmpw	$__USER_CS, F_CS(%rsp)
	jne	1f
	cmpw	$__USER_DS, F_SS(%rsp)
	jne	1f
	STACK_BASE %rdx
	movq	STACK_thread(%rdx), %rcx
	cmpq	$0, THREAD_syscall_work(%rcx)
	jne	1f
	SUM_UP	%rcx
	movq	%rcx, STACK_raised_sum(%rdx)
	movq	%rax, STACK_raised_error(%rdx)
	movq	$__KERNEL_CS, F_CS(%rsp)
	movq	$__KERNEL_DS, F_SS(%rsp)
	movq	$TLK_VECTOR_RETRY, F_VECTOR(%rsp)
1:
.endm

/*
 * Copies the frame to below rcx, with the error code if the processor gave one, puts three
 * registers and the handler's address below it, gives the area of this stack back, and jumps to the
 * handler. An NMI may have moved the TSS slot down: the end of this area is put there again.
 */
.macro DELIVER has_error freed
	movq	F_SS(%rsp), %rax
	movq	%rax, -8(%rcx)
	movq	F_SP(%rsp), %rax
	movq	%rax, -16(%rcx)
	movq	F_FLAGS(%rsp), %rax
	movq	%rax, -24(%rcx)
	movq	F_CS(%rsp), %rax
	movq	%rax, -32(%rcx)
	movq	F_IP(%rsp), %rax
	movq	%rax, -40(%rcx)
	.if \has_error
	movq	F_ERROR(%rsp), %rax
	movq	%rax, -48(%rcx)
	subq	$48, %rcx
	.else
	subq	$40, %rcx
	.endif
	movq	F_VECTOR(%rsp), %rdx
	movq	tlk_supervisor_handlers(,%rdx,8), %rax
	movq	%rax, -8(%rcx)
	movq	F_AX(%rsp), %rax
	movq	%rax, -16(%rcx)
	movq	F_CX(%rsp), %rax
	movq	%rax, -24(%rcx)
	movq	F_DX(%rsp), %rax
	movq	%rax, -32(%rcx)
	STACK_BASE %rdx
	movq	STACK_ist(%rdx), %rdx
	movq	%rsp, %rax
	orq	$(STACK_AREA_BYTES - 1), %rax
	incq	%rax
	movq	%rax, (%rdx)
	/* Nothing on the interrupt stack is needed any more. */
SYM_INNER_LABEL(\freed, SYM_L_LOCAL)
	TLK_ANNOTATE_NOENDBR
	leaq	-32(%rcx), %rsp
	TLK_UNWIND_HINT_IRET(32+8*\has_error)
	popq	%rdx
	popq	%rcx
	popq	%rax
	TLK_UNWIND_HINT_IRET(8+8*\has_error)
	/* A jump without a register to spare; the return predictor is wrong about it. */
	ANNOTATE_UNRET_SAFE
	ret
	int3
.endm

/*
 * Repairs selectors of level 0 to which the kernel's iretq cannot return. The program has read cs
 * and ss at level 0 and stored them in a signal's frame, and the return from the signal has set
 * level 3 in them. The macro puts user mode's selectors in their place, and iretq is tried again.
 * For a 16-bit stack segment iretq reads a copy of its frame, through an alias that is read-only.
 * Then the copy is changed where it can be written, and the stack of arrivals from user mode, which
 * is free by then, takes the frame of the retry. rcx: the instruction pointer; for 12 the stack.
 */
.macro OWN_SELECTORS
	cmpq	tlk_kernel_iret(%rip), %rcx
	jne	3f
	STACK_BASE %rax
	movq	F_SP(%rsp), %rdx
	movq	%rdx, %rcx
	sarq	$ESPFIX_SHIFT, %rcx
	cmpq	$ESPFIX_ENTRY, %rcx
	movq	%rdx, %rcx
	jne	1f
	movq	STACK_espfix(%rax), %rdx
	movq	STACK_entry_stack(%rax), %rcx
1:	andq	$-16, %rcx
	xorl	%eax, %eax
	cmpq	$(__KERNEL_CS | SEGMENT_RPL_MASK), IRET_CS(%rdx)
	jne	1f
	movq	$__USER_CS, IRET_CS(%rdx)
	incl	%eax
1:	cmpq	$(__KERNEL_DS | SEGMENT_RPL_MASK), IRET_SS(%rdx)
	jne	2f
	movq	$__USER_DS, IRET_SS(%rdx)
	incl	%eax
2:	testl	%eax, %eax
	jz	3f
	movq	$TLK_VECTOR_RETRY, F_VECTOR(%rsp)
	jmp	12f
3:	movq	F_IP(%rsp), %rcx
.endm

/*
 * Turns a fault in kernel code into a double fault if the processor could not have stored its frame
 * on that code's stack. These are iret's own faults on the read-only stack for returns to 16-bit
 * stack segments, which the kernel repairs, and those of a stub that finds no room for its frame,
 * which end the machine. rcx: the instruction pointer.
 */
.macro PROMOTE
	movq	F_SP(%rsp), %rdx
	sarq	$ESPFIX_SHIFT, %rdx
	cmpq	$ESPFIX_ENTRY, %rdx
	je	1f
	cmpq	$tlk_supervisor_stubs, %rcx
	jb	2f
	cmpq	$stub_with_error_freed, %rcx
	jae	2f
1:	movq	$X86_TRAP_DF, F_VECTOR(%rsp)
	movq	$0, F_ERROR(%rsp)
	STACK_BASE %rdx
	movq	STACK_ist(%rdx), %rcx
	movq	DOUBLE_FAULT_IST(%rcx), %rcx
	jmp	12f
2:
.endm

/*
 * Receives one arrival. The kernel finds a frame from user code on the entry stack of the TSS, and
 * one from kernel code below the stack pointer of that code, which is aligned first as the
 * processor would do.
 */
.macro STUB has_error freed
	TLK_UNWIND_HINT_IRET(16)
	pushq	%rax
	pushq	%rcx
	pushq	%rdx
	TLK_UNWIND_HINT_IRET(40)
	testb	$3, F_CS(%rsp)
	.if \has_error
	jnz	13f
	.else
	jnz	11f
	.endif
	CLASSIFY 10f
	.if \has_error
	OWN_SELECTORS
	PROMOTE
	.endif
	movq	F_SP(%rsp), %rcx
	andq	$-16, %rcx
	jmp	12f
	.if \has_error
13:	RAISE
	jmp	11f
	.endif
10:	DEMOTE
	.if \has_error
	RETRY
	.endif
11:	STACK_BASE %rdx
	movq	STACK_entry_stack(%rdx), %rcx
12:	DELIVER \has_error \freed
.endm

SYM_CODE_START_LOCAL(stub_without_error)
	TLK_ANNOTATE_NOENDBR
	STUB 0 stub_without_error_freed
SYM_CODE_END(stub_without_error)

SYM_CODE_START_LOCAL(stub_with_error)
	TLK_ANNOTATE_NOENDBR
	STUB 1 stub_with_error_freed
SYM_CODE_END(stub_with_error)

/*
 * Ends a RETRY, RAISE or OWN_SELECTORS, in a handler's place, with the frame and an error code on
 * the stack. The frame's selectors, flags and address are such that iretq takes them. No kernel
 * code has run since the arrival, so there is nothing to do on the way out.
 */
SYM_CODE_START(tlk_supervisor_retry)
	TLK_UNWIND_HINT_IRET(8)
	TLK_ANNOTATE_NOENDBR
	addq	$8, %rsp
	TLK_UNWIND_HINT_IRET(0)
	iretq
SYM_CODE_END(tlk_supervisor_retry)
_ASM_NOKPROBE(tlk_supervisor_retry)

/*
 * #DB, NMI and #MC have interrupt stacks of the kernel's own and keep them: the frame is demoted
 * where it is. Only one word of the NMI's stack may be used: the next is the kernel's flag that an
 * NMI is being handled. So two registers go to the processor's struct tlk_supervisor_stack, which
 * is found without GS, because GS may be the user's or the kernel's at this moment.
 *
 * Between a stub and the kernel's handler these can come, and the kernel can fault in them (it
 * reads user memory for a trace, say). That fault's stub must not find the first one's frame in its
 * way: the TSS slot is moved to the area below.
 */
#define P_AX	0
#define P_IP	8
#define P_CS	16
#define P_FLAGS	24
#define P_SP	32
#define P_SS	40

.macro IN_PLACE name vector spill cause
SYM_CODE_START(\name)
	TLK_UNWIND_HINT_IRET(0)
	ENDBR
	pushq	%rax
	TLK_UNWIND_HINT_IRET(8)
	movl	$__CPUNODE_SEG, %eax
	lsl	%eax, %eax
	andl	$0xfff, %eax			/* VDSO_CPUNODE_MASK */
	movq	__per_cpu_offset(,%rax,8), %rax
	movq	tlk_supervisor_cpu + CPU_stack(%rax), %rax
	movq	%rcx, STACK_spill + 16 * \spill(%rax)
	testb	$3, P_CS(%rsp)
	jnz	9f
	movq	P_IP(%rsp), %rcx
	sarq	$KERNEL_ADDRESS_SHIFT, %rcx
	incq	%rcx
	jz	1f
3:	movq	$__USER_CS, P_CS(%rsp)
	movq	$__USER_DS, P_SS(%rsp)
	orq	$X86_EFLAGS_IF, P_FLAGS(%rsp)
	andq	$~TLK_FLAGS_OF_LEVEL_0, P_FLAGS(%rsp)
	movq	STACK_demotions(%rax), %rcx
	incq	8 * \cause(%rcx)
	jmp	9f
1:	movq	P_IP(%rsp), %rcx		/* user code, as in CLASSIFY? */
	leaq	VSYSCALL_PAGE_NUMBER(%rcx), %rcx
	shrq	$12, %rcx
	jz	3b
	movq	P_IP(%rsp), %rcx		/* in a stub that still needs its area? */
	cmpq	$tlk_supervisor_stubs, %rcx
	jb	9f
	cmpq	$stub_with_error_freed, %rcx
	jae	9f
	cmpq	$stub_without_error_freed, %rcx
	jb	2f
	cmpq	$stub_with_error, %rcx
	jb	9f
2:	movq	%rdx, STACK_spill + 16 * \spill + 8(%rax)
	movq	P_SP(%rsp), %rcx
	decq	%rcx
	andq	$-STACK_AREA_BYTES, %rcx
	movq	STACK_ist(%rax), %rdx
	movq	%rcx, (%rdx)
	movq	STACK_spill + 16 * \spill + 8(%rax), %rdx
9:	movq	STACK_spill + 16 * \spill(%rax), %rcx
	popq	%rax
	TLK_UNWIND_HINT_IRET(0)
	ANNOTATE_RETPOLINE_SAFE			/* there is no register to spare for a retpoline */
	jmp	*(tlk_supervisor_handlers + 8 * \vector)
SYM_CODE_END(\name)
_ASM_NOKPROBE(\name)
.endm

IN_PLACE tlk_supervisor_stub_debug X86_TRAP_DB 0 DEMOTED_DEBUG
IN_PLACE tlk_supervisor_stub_nmi X86_TRAP_NMI 1 DEMOTED_NMI
IN_PLACE tlk_supervisor_stub_machine_check X86_TRAP_MC 2 DEMOTED_MACHINE_CHECK

_ASM_NOKPROBE(tlk_supervisor_stubs)
_ASM_NOKPROBE(stub_without_error)
_ASM_NOKPROBE(stub_with_error)
