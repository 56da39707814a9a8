/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The path of a system call in supervisor mode without its handler, as far as user mode can execute
 * it: the loads, stores and branches of kmod/supervisor/entry.S, an indirect call, and `popfq`,
 * `popq %rsp`, `jmp *%rcx`. Four instructions are missing, which user mode may not execute:
 * `swapgs` twice, `sti`, `cli`. So is `syscall` itself.
 *
 * long estimate_path(long *frame): clobbers what a system call does. `frame` has 24 words.
 */
#define FRAME_ip 16*8
#define FRAME_flags 18*8
#define FRAME_sp 19*8

	.text
	.balign 16
handler:
	movl	$7, %eax
	ret

	.balign 16
	.globl estimate_path
	.type estimate_path, @function
estimate_path:
	pushq	%rbx
	leaq	back(%rip), %rcx
	pushfq
	popq	%r11
	movq	%rsp, 21*8(%rdi)
	movq	%rdi, %rsp
	movl	$39, %eax

	/* From here on as in entry.S. */
	orl	$0x200, %r11d
	movq	%rcx, FRAME_ip(%rsp)
	movq	%r11, FRAME_flags(%rsp)
	movq	%rsp, %rcx
	andl	$0x100, %r11d
	orq	20*8(%rcx), %r11
	jnz	wrong
	cmpq	$511, %rax
	ja	wrong
	movq	%rdi, 14*8(%rsp)
	movq	%rsi, 13*8(%rsp)
	movq	%rdx, 12*8(%rsp)
	movq	%r10, 7*8(%rsp)
	movq	%r8, 9*8(%rsp)
	movq	%r9, 8*8(%rsp)
	movq	%rax, 15*8(%rsp)
	movq	21*8(%rsp), %rcx
	movq	%rcx, FRAME_sp(%rsp)
	movq	%rsp, %rdi
	leaq	handler(%rip), %rbx
	call	*%rbx
	movq	%rsp, %r11
	testl	$-1, 20*8(%r11)
	jnz	wrong
	incq	22*8(%rsp)
	movq	9*8(%rsp), %r8
	movq	8*8(%rsp), %r9
	movq	7*8(%rsp), %r10
	movq	12*8(%rsp), %rdx
	movq	13*8(%rsp), %rsi
	movq	14*8(%rsp), %rdi
	movq	FRAME_ip(%rsp), %rcx
	movq	FRAME_flags(%rsp), %r11
	addq	$FRAME_flags, %rsp
	popfq
	popq	%rsp
	jmp	*%rcx
back:
	popq	%rbx
	ret
wrong:
	ud2

	.section .note.GNU-stack, "", @progbits
