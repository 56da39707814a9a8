/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Hints for the kernel's stack unwinder and objtool, under one name on every kernel. This header
 * owns names only.
 */
#ifndef TLK_COMPAT_UNWIND_H
#define TLK_COMPAT_UNWIND_H

#include <linux/objtool.h>
#include <asm/frame.h>
#include <asm/unwind_hints.h>
#ifdef TLK_HAS_ANNOTATE
#include <linux/annotate.h>
#endif

/* The stack pointer is the user's or in between: a trace ends here. */
#ifdef TLK_HAS_UNWIND_HINT_EMPTY
#define TLK_UNWIND_HINT_NONE UNWIND_HINT_EMPTY
#else
#define TLK_UNWIND_HINT_NONE UNWIND_HINT_END_OF_STACK
#endif

/* The stack pointer is at a struct pt_regs of user code. */
#define TLK_UNWIND_HINT_FRAME UNWIND_HINT_REGS

/* The stack pointer is `bytes` below what the processor pushed. */
#define TLK_UNWIND_HINT_IRET(bytes) UNWIND_HINT_IRET_REGS offset=bytes

/* An address that is taken to be compared with, or for MSR_LSTAR, which needs no ENDBR here. */
#define TLK_ANNOTATE_NOENDBR ANNOTATE_NOENDBR

/*
 * Kernels that unwind by frame pointers look for the encoded address of a struct pt_regs in rbp.
 * The first macro puts the address of the frame at the stack pointer there and saves the caller's
 * rbp in the frame; the second restores rbp. Other kernels leave the caller's rbp in its register:
 * there the third macro saves it when the frame must be whole. `bp` is the offset of the frame's
 * field.
 */
#ifdef CONFIG_FRAME_POINTER
#define TLK_ENTER_FRAME(bp)	movq %rbp, bp(%rsp); ENCODE_FRAME_POINTER
#define TLK_LEAVE_FRAME(bp)	movq bp(%rsp), %rbp
#define TLK_STORE_BP(bp)
#else
#define TLK_ENTER_FRAME(bp)
#define TLK_LEAVE_FRAME(bp)
#define TLK_STORE_BP(bp)	movq %rbp, bp(%rsp)
#endif

#endif /* TLK_COMPAT_UNWIND_H */
