/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Hints for the kernel's stack unwinder and objtool, under one name on every kernel. Owns names
 * only.
 */
#ifndef TLK_COMPAT_UNWIND_H
#define TLK_COMPAT_UNWIND_H

#include <linux/objtool.h>
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

#endif /* TLK_COMPAT_UNWIND_H */
