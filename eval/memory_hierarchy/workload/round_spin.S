/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Ends at an exact reading of the time-stamp counter where it counts instructions, as under the
 * lab's --icount. round_time.c uses it, and knows what to do where the counter does not count
 * instructions.
 */
	.text

#define TURN	64	/* instructions in a turn of the loop */
#define OWN	14	/* from the first reading to the last, beside turns and what is left */

/*
 * bool round_spin(uint64_t instant)
 *
 * In:      rdi  the reading to end at
 * Out:     rax  1 if the last reading was that, to the instruction; 0 if it was near or past, or if
 *               something came between
 * Changes: rcx, rdx, rsi, flags
 */
	.globl	round_spin
	.type	round_spin, @function
	.balign	64
round_spin:
	rdtsc
	shlq	$32, %rdx
	orq	%rdx, %rax
	movq	%rdi, %rcx
	subq	%rax, %rcx
	subq	$(OWN + TURN), %rcx	/* one turn at least */
	jl	.Lpast			/* signed: the instant may have been long ago */
	movq	%rcx, %rdx
	shrq	$6, %rcx		/* turns after the first */
	andl	$(TURN - 1), %edx	/* instructions left */
	leaq	.Lleft_end(%rip), %rsi
	subq	%rdx, %rsi
	jmp	*%rsi
	.fill	TURN - 1, 1, 0x90	/* nop, one byte each */
.Lleft_end:
	incq	%rcx
.Lturn:
	.fill	TURN - 2, 1, 0x90
	decq	%rcx
	jnz	.Lturn
	rdtsc
	shlq	$32, %rdx
	orq	%rdx, %rax
	cmpq	%rdi, %rax
	sete	%al
	movzbl	%al, %eax
	ret
.Lpast:
	xorl	%eax, %eax
	ret
	.size	round_spin, . - round_spin

	.section .note.GNU-stack, "", @progbits
