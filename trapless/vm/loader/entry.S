/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The first and the last instructions of the loader. The kernel's real-mode code enters at the
 * first byte, as it would enter the decompressor: 32-bit protected mode, flat segments, no paging,
 * no interrupts, esi = boot parameters (Documentation/arch/x86/boot.rst). The kernel is entered as
 * the decompressor would: 64-bit mode, 4 GB mapped to themselves, rsi = boot parameters.
 */
	.section .entry, "ax"
	.code32
	.globl entry
entry:
	cli
	cld
	movl	%cr4, %eax
	orl	$0x200, %eax		/* OSFXSR: copy() uses SSE */
	movl	%eax, %cr4
	movl	$stack_end, %esp
	pushl	%esi			/* boot parameters, across load_kernel */
	movl	%esi, %eax		/* and its argument (regparm) */
	call	load_kernel		/* eax = where the kernel is entered */
	movl	%eax, %edi
	popl	%esi

	lgdt	gdt_pointer
	movl	%cr4, %eax
	orl	cr4_bits, %eax
	movl	%eax, %cr4
	movl	top_table, %eax
	movl	%eax, %cr3
	movl	$0xc0000080, %ecx	/* EFER */
	rdmsr
	btsl	$8, %eax		/* LME */
	wrmsr
	movl	$0x80000001, %eax	/* PG, PE */
	movl	%eax, %cr0
	ljmp	$0x10, $long_mode

	.code64
long_mode:
	movl	$0x18, %eax
	movl	%eax, %ds
	movl	%eax, %es
	movl	%eax, %ss
	movl	%edi, %eax		/* clears the upper halves */
	movl	%esi, %esi
	jmp	*%rax

	.data
	.balign	8
gdt:
	.quad	0, 0
	.quad	0x00af9a000000ffff	/* 0x10: 64-bit code */
	.quad	0x00cf92000000ffff	/* 0x18: data */
gdt_end:
gdt_pointer:
	.word	gdt_end - gdt - 1
	.long	gdt

	.balign	16
	.skip	4096
stack_end:
	.section .note.GNU-stack, "", @progbits
