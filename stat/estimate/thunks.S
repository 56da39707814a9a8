/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel's thunks for indirect calls and for returns, as it patches them where it uses them.
 * One object for each build of the loop: RETPOLINE, THUNK and SAFE say which it needs.
 *
 * A thunk changes no register. The retpoline of a register jumps to where that register points.
 */
	.section .text.estimate, "ax", @progbits

#ifdef RETPOLINE
.irp register, rax, rbx, rcx, rdx, rsi, rdi, rbp, r8, r9, r10, r11, r12, r13, r14, r15
	.balign 32
	.globl __x86_indirect_thunk_\register
	.type __x86_indirect_thunk_\register, @function
__x86_indirect_thunk_\register:
	call	1f
0:	pause
	lfence
	jmp	0b
	.balign 16
1:	movq	%\register, (%rsp)
#if defined(THUNK) || defined(SAFE)
	jmp	__x86_return_thunk
#else
	ret
#endif
	int3
.endr
#endif

#ifdef THUNK
	.balign 64
	.globl __x86_return_thunk
	.type __x86_return_thunk, @function
__x86_return_thunk:
	ret
	int3
#endif

#ifdef SAFE
	.balign 64
	.skip 63, 0xcc
safe_ret:
	leaq	8(%rsp), %rsp
	ret
	int3
	.balign 64
	.globl __x86_return_thunk
	.type __x86_return_thunk, @function
__x86_return_thunk:
	call	safe_ret
	ud2
#endif

	.section .note.GNU-stack, "", @progbits
